// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <range/v3/view/take.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.sharding;

namespace shardmesh {
namespace {

// The boxes of shards in flat arrays, `rank` numbers each. A shard with another number of dimensions is stored as an
// empty box.
struct flat_shards {
  std::unique_ptr<std::int64_t[]> offsets, sizes;
  std::vector<owner_id> owners;
  std::vector<std::size_t> odd;  // shards with another number of dimensions
};

flat_shards flatten(const shard_metadata_list& shards, std::size_t rank) {
  const std::size_t numbers = shards.size() * rank;
  flat_shards flat{std::make_unique_for_overwrite<std::int64_t[]>(numbers),
                   std::make_unique_for_overwrite<std::int64_t[]>(numbers),
                   std::vector<owner_id>(shards.size()),
                   {}};
  std::int64_t* offset = flat.offsets.get();
  std::int64_t* size = flat.sizes.get();
  for (std::size_t i = 0; i < shards.size(); ++i, offset += rank, size += rank) {
    const shard_metadata_view shard = shards[i];
    flat.owners[i] = shard.rank().value_or(-1);
    if (shard.offsets().size() == rank && shard.sizes().size() == rank) {
      std::copy_n(shard.offsets().data(), rank, offset);
      std::copy_n(shard.sizes().data(), rank, size);
    } else {
      std::fill_n(offset, rank, 0);
      std::fill_n(size, rank, 0);
      flat.odd.push_back(i);
    }
  }
  return flat;
}

// The problem of a shard with another number of dimensions than its tensor. Its box keeps as many numbers as a box can
// hold.
cover_problem odd_problem(const shard_metadata_list& shards, std::size_t at) {
  const shard_metadata_view shard = shards[at];
  const auto numbers = [](std::span<const std::int64_t> all) {
    return extents(all.first(std::min(all.size(), max_rank)));
  };
  const owner_id owner = shard.rank().value_or(-1);
  const auto index = static_cast<std::int64_t>(at);
  return {cover_kind::out_of_bounds, {numbers(shard.offsets()), numbers(shard.sizes())}, owner, owner, index, index,
          owner_space::ranks};
}

// Puts the problems of odd shards in front of the problems of boxes.
cover_report with_odd(cover_report boxes, const flat_shards& flat, const shard_metadata_list& shards,
                      std::size_t max_problems) {
  if (flat.odd.empty()) return boxes;
  std::vector<cover_problem> problems;
  for (const std::size_t at : flat.odd | ranges::views::take(max_problems)) {
    problems.push_back(odd_problem(shards, at));
  }
  for (cover_problem& p : boxes.problems)
    if (problems.size() < max_problems) problems.push_back(std::move(p));
  boxes.problems = std::move(problems);
  boxes.total += static_cast<std::int64_t>(flat.odd.size());
  return boxes;
}

bool is_odd(const shard_metadata_view& shard, std::size_t rank) {
  return shard.offsets().size() != rank || shard.sizes().size() != rank;
}

shard_metadata_view first_shard(const cover_problem& problem, const shard_metadata_list& shards) {
  return shards[static_cast<std::size_t>(problem.first_index)];
}
shard_metadata_view second_shard(const cover_problem& problem, const shard_metadata_list& shards) {
  return shards[static_cast<std::size_t>(problem.second_index)];
}

error with_ranks(error e, const cover_problem& p, const shard_metadata_list& shards) {
  const auto first = first_shard(p, shards).rank(), second = second_shard(p, shards).rank();
  if (first) e = std::move(e).with_rank(*first);
  if (second && p.kind == cover_kind::overlap) e = std::move(e).with_rank(*second);
  return e;
}

// `rank` is the number of dimensions that the shards should have; `size` is null when the tensor is unknown.
error first_error(const cover_problem& p, const shard_metadata_list& shards, std::size_t rank, const extents* size) {
  if (p.kind == cover_kind::gap) return fail(errc::gap, "cells are held by no rank").with_box(p.where);
  const shard_metadata_view first = first_shard(p, shards);
  // A valid box is attached to the error; invalid numbers are part of its text.
  const bool is_box = first.is_well_formed();
  const auto at_box = [&](error e) { return is_box ? std::move(e).with_box(first.where()) : std::move(e); };
  const std::string what = is_box ? "" : " with " + detail::box_text(first);
  if (p.kind == cover_kind::overlap)
    return with_ranks(
        fail(errc::overlap, fmt::format("shards {} at {} and {} at {} overlap", p.first_index, detail::box_text(first),
                                        p.second_index, detail::box_text(second_shard(p, shards))))
            .with_box(p.where),
        p, shards);
  if (is_odd(first, rank))
    return with_ranks(
        at_box(fail(errc::shape_mismatch, fmt::format("shard {}{} does not have the {}'s number of dimensions",
                                                      p.first_index, what, size ? "tensor" : "first shard"))
                   .with_values(std::to_string(rank),
                                first.offsets().size() == first.sizes().size()
                                    ? std::to_string(first.sizes().size())
                                    : fmt::format("{}, {}", detail::counted(first.offsets().size(), "offset"),
                                                  detail::counted(first.sizes().size(), "size")))),
        p, shards);
  error e = fail(errc::out_of_bounds,
                 size ? fmt::format("shard {}{} extends beyond the tensor", p.first_index, what)
                      : fmt::format("shard {} is not a box: {}", p.first_index, detail::box_text(first)));
  if (size) e = std::move(e).with_values("within " + to_string(box::whole(*size)), detail::box_text(first));
  return with_ranks(at_box(std::move(e)), p, shards);
}

result<void> to_result(const cover_report& report, const shard_metadata_list& shards, std::size_t rank,
                       const extents* size) {
  if (report.ok()) return {};
  error e = first_error(report.problems.front(), shards, rank, size);
  if (report.total > 1)
    e = std::move(e).with_hint(fmt::format("and {}{} more problem{}", report.total_is_exact ? "" : "at least ",
                                           report.total - 1, report.total == 2 ? "" : "s"));
  return e;
}

}  // namespace

cover_report check_shards(const shard_metadata_list& shards, const extents& size, std::size_t max_problems) {
  const flat_shards flat = flatten(shards, size.rank());
  // All boxes of a scalar are alike, so the boxes of odd shards are left out.
  const std::size_t boxes = size.empty() ? shards.size() - flat.odd.size() : shards.size();
  const std::size_t numbers = boxes * size.rank();
  cover_report report =
      check_boxes(size, {flat.offsets.get(), numbers}, {flat.sizes.get(), numbers}, std::span(flat.owners).first(boxes),
                  max_problems, owner_space::ranks, equal_boxes::overlap);
  return with_odd(std::move(report), flat, shards, max_problems);
}

std::string describe(const cover_problem& problem, const shard_metadata_list& shards) {
  if (problem.kind == cover_kind::gap) return to_string(problem.where) + " is held by no rank";
  const auto name = [&](std::int64_t index) {
    const auto rank = shards[static_cast<std::size_t>(index)].rank();
    return rank ? fmt::format("rank {}", *rank) : fmt::format("shard {}", index);
  };
  const shard_metadata_view first = first_shard(problem, shards);
  if (problem.kind == cover_kind::overlap) {
    const auto a = first.rank(), b = second_shard(problem, shards).rank();
    std::string who = fmt::format("{} and {}", name(problem.first_index), name(problem.second_index));
    if (a && b) who = *a == *b ? fmt::format("two shards of rank {}", *a) : fmt::format("ranks {} and {}", *a, *b);
    if (!a && !b) who = fmt::format("shards {} and {}", problem.first_index, problem.second_index);
    return fmt::format("{} overlap in {}", who, to_string(problem.where));
  }
  if (!first.is_well_formed())
    return fmt::format("{} has a shard with {}", name(problem.first_index), detail::box_text(first));
  return fmt::format("{} extends beyond the tensor with {}", name(problem.first_index), to_string(problem.where));
}

result<void> validate_non_overlapping_shards_metadata(const shard_metadata_list& shards) {
  if (shards.empty()) return {};
  const std::size_t rank = shards[0].sizes().size();
  if (rank > max_rank)
    return detail::at_shard(fail(errc::rank_too_large, "shard 0 has too many dimensions")
                                .with_values(fmt::format("at most {}", max_rank), std::to_string(rank)),
                            shards[0]);
  const flat_shards flat = flatten(shards, rank);
  constexpr std::size_t named = 1;
  cover_report report;
  const std::size_t numbers = shards.size() * rank;
  if (rank > 0)
    report = check_overlaps(rank, {flat.offsets.get(), numbers}, {flat.sizes.get(), numbers}, flat.owners, named);
  return to_result(with_odd(std::move(report), flat, shards, named), shards, rank, nullptr);
}

result<void> check_tensor(const shard_metadata_list& shards, const extents& size) {
  if (const auto valid = check_shape(size); !valid) return valid.error();
  return to_result(check_shards(shards, size, 1), shards, size.rank(), &size);
}

}  // namespace shardmesh
