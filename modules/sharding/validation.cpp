// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>

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

// Boxes of shards in flat arrays, `rank` numbers each. A shard of another number of dimensions is an empty box here.
struct flat_shards {
  std::unique_ptr<std::int64_t[]> offsets, sizes;
  std::vector<owner_id> owners;
  std::vector<std::size_t> odd;  // shards of another number of dimensions
};

flat_shards flatten(std::span<const shard_metadata> shards, std::size_t rank) {
  const std::size_t numbers = shards.size() * rank;
  flat_shards flat{std::make_unique_for_overwrite<std::int64_t[]>(numbers),
                   std::make_unique_for_overwrite<std::int64_t[]>(numbers),
                   std::vector<owner_id>(shards.size()),
                   {}};
  std::int64_t* offset = flat.offsets.get();
  std::int64_t* size = flat.sizes.get();
  for (std::size_t i = 0; i < shards.size(); ++i, offset += rank, size += rank) {
    const shard_metadata& shard = shards[i];
    flat.owners[i] = shard.rank().value_or(-1);
    if (shard.offsets.rank() == rank && shard.sizes.rank() == rank) {
      std::copy_n(shard.offsets.data(), rank, offset);
      std::copy_n(shard.sizes.data(), rank, size);
    } else {
      std::fill_n(offset, rank, 0);
      std::fill_n(size, rank, 0);
      flat.odd.push_back(i);
    }
  }
  return flat;
}

// The report on the boxes, with the odd shards before it.
cover_report with_odd(cover_report boxes, const flat_shards& flat, std::span<const shard_metadata> shards,
                      std::size_t max_problems) {
  if (flat.odd.empty()) return boxes;
  std::vector<cover_problem> problems;
  for (std::size_t i = 0; i < std::min(flat.odd.size(), max_problems); ++i) {
    const std::size_t at = flat.odd[i];
    const auto index = static_cast<std::int64_t>(at);
    problems.push_back({cover_kind::out_of_bounds, shards[at].where(), flat.owners[at], flat.owners[at], index, index,
                        owner_space::ranks});
  }
  for (cover_problem& p : boxes.problems)
    if (problems.size() < max_problems) problems.push_back(std::move(p));
  boxes.problems = std::move(problems);
  boxes.total += static_cast<std::int64_t>(flat.odd.size());
  return boxes;
}

bool is_odd(const shard_metadata& shard, std::size_t rank) {
  return shard.offsets.rank() != rank || shard.sizes.rank() != rank;
}

const shard_metadata& first_shard(const cover_problem& problem, std::span<const shard_metadata> shards) {
  return shards[static_cast<std::size_t>(problem.first_index)];
}
const shard_metadata& second_shard(const cover_problem& problem, std::span<const shard_metadata> shards) {
  return shards[static_cast<std::size_t>(problem.second_index)];
}

std::string box_text(const shard_metadata& shard) {
  if (shard.offsets.rank() == shard.sizes.rank() && is_well_formed(shard.where())) return to_string(shard.where());
  return fmt::format("offsets {} and sizes {}", to_string(shard.offsets), to_string(shard.sizes));
}

error with_ranks(error e, const cover_problem& p, std::span<const shard_metadata> shards) {
  const auto first = first_shard(p, shards).rank(), second = second_shard(p, shards).rank();
  if (first) e = std::move(e).with_rank(*first);
  if (second && p.kind == cover_kind::overlap) e = std::move(e).with_rank(*second);
  return e;
}

// `rank` is the number of dimensions that the shards should have; `size` is null when the tensor is not known.
error first_error(const cover_problem& p, std::span<const shard_metadata> shards, std::size_t rank,
                  const extents* size) {
  if (p.kind == cover_kind::gap) return fail(errc::gap, "cells are held by no rank").with_box(p.where);
  const shard_metadata& first = first_shard(p, shards);
  // The error itself names a box; what is none stands in its text.
  const bool is_box = first.offsets.rank() == first.sizes.rank() && is_well_formed(first.where());
  const auto at_box = [&](error e) { return is_box ? std::move(e).with_box(first.where()) : std::move(e); };
  const std::string what = is_box ? "" : " with " + box_text(first);
  if (p.kind == cover_kind::overlap)
    return with_ranks(
        fail(errc::overlap, fmt::format("shards {} at {} and {} at {} overlap", p.first_index, box_text(first),
                                        p.second_index, box_text(second_shard(p, shards))))
            .with_box(p.where),
        p, shards);
  if (is_odd(first, rank))
    return with_ranks(
        at_box(fail(errc::shape_mismatch, fmt::format("shard {}{} does not have the {}'s number of dimensions",
                                                      p.first_index, what, size ? "tensor" : "first shard"))
                   .with_values(std::to_string(rank),
                                first.offsets.rank() == first.sizes.rank()
                                    ? std::to_string(first.sizes.rank())
                                    : fmt::format("{} offsets, {} sizes", first.offsets.rank(), first.sizes.rank()))),
        p, shards);
  error e = fail(errc::out_of_bounds, size ? fmt::format("shard {}{} leaves the tensor", p.first_index, what)
                                           : fmt::format("shard {} is no box: {}", p.first_index, box_text(first)));
  if (size) e = std::move(e).with_values("within " + to_string(box::whole(*size)), box_text(first));
  return with_ranks(at_box(std::move(e)), p, shards);
}

result<void> to_result(const cover_report& report, std::span<const shard_metadata> shards, std::size_t rank,
                       const extents* size) {
  if (report.ok()) return {};
  error e = first_error(report.problems.front(), shards, rank, size);
  if (report.total > 1)
    e = std::move(e).with_hint(fmt::format("and {}{} more problem{}", report.total_is_exact ? "" : "at least ",
                                           report.total - 1, report.total == 2 ? "" : "s"));
  return e;
}

}  // namespace

cover_report check_shards(std::span<const shard_metadata> shards, const extents& size, std::size_t max_problems) {
  const flat_shards flat = flatten(shards, size.rank());
  // Boxes of a scalar are all alike: an odd shard is none of them.
  const std::size_t boxes = size.empty() ? shards.size() - flat.odd.size() : shards.size();
  const std::size_t numbers = boxes * size.rank();
  cover_report report =
      check_boxes(size, {flat.offsets.get(), numbers}, {flat.sizes.get(), numbers}, std::span(flat.owners).first(boxes),
                  max_problems, owner_space::ranks, equal_boxes::overlap);
  return with_odd(std::move(report), flat, shards, max_problems);
}

std::string describe(const cover_problem& problem, std::span<const shard_metadata> shards) {
  if (problem.kind == cover_kind::gap) return to_string(problem.where) + " is held by no rank";
  const auto name = [&](std::int64_t index) {
    const auto rank = shards[static_cast<std::size_t>(index)].rank();
    return rank ? fmt::format("rank {}", *rank) : fmt::format("shard {}", index);
  };
  const shard_metadata& first = first_shard(problem, shards);
  if (problem.kind == cover_kind::overlap) {
    const auto a = first.rank(), b = second_shard(problem, shards).rank();
    std::string who = fmt::format("{} and {}", name(problem.first_index), name(problem.second_index));
    if (a && b) who = *a == *b ? fmt::format("two shards of rank {}", *a) : fmt::format("ranks {} and {}", *a, *b);
    if (!a && !b) who = fmt::format("shards {} and {}", problem.first_index, problem.second_index);
    return fmt::format("{} overlap in {}", who, to_string(problem.where));
  }
  if (first.offsets.rank() != first.sizes.rank() || !is_well_formed(first.where()))
    return fmt::format("{} has a shard with {}", name(problem.first_index), box_text(first));
  return fmt::format("{} leaves the tensor with {}", name(problem.first_index), to_string(problem.where));
}

result<void> validate_non_overlapping_shards_metadata(std::span<const shard_metadata> shards) {
  if (shards.empty()) return {};
  const std::size_t rank = shards.front().sizes.rank();
  const flat_shards flat = flatten(shards, rank);
  constexpr std::size_t named = 1;
  cover_report report;
  const std::size_t numbers = shards.size() * rank;
  if (rank > 0)
    report = check_overlaps(rank, {flat.offsets.get(), numbers}, {flat.sizes.get(), numbers}, flat.owners, named);
  return to_result(with_odd(std::move(report), flat, shards, named), shards, rank, nullptr);
}

result<void> check_tensor(std::span<const shard_metadata> shards, const extents& size) {
  if (const auto valid = check_shape(size); !valid) return valid.error();
  return to_result(check_shards(shards, size, 1), shards, size.rank(), &size);
}

}  // namespace shardmesh
