// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <range/v3/view/enumerate.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.sharding;

namespace shardmesh {
namespace {

error first_of(std::vector<error> problems) {
  error first = std::move(problems.front());
  if (problems.size() == 1) return first;
  const std::string more = fmt::format("and {} more problem{}", problems.size() - 1, problems.size() == 2 ? "" : "s");
  return std::move(first).with_hint(first.hint.empty() ? more : fmt::format("{}; {}", first.hint, more));
}

void append(std::vector<error>& problems, result<void> checked) {
  if (!checked) problems.push_back(std::move(checked).error());
}

// Appends copies of the shards of one rank's metadata.
result<void> append_shards(sharded_tensor_metadata& made, const sharded_tensor_metadata_view& one) {
  for (std::size_t s = 0; s < one.shards().size(); ++s) {
    SHARDMESH_TRY(auto copied, detail::copy_of(one.shards()[s], s));
    made.shards.push_back(std::move(copied));
  }
  return {};
}

}  // namespace

namespace detail {

extents sizes_of_nested(const sharded_tensor_metadata_view& nested) {
  auto sizes = as_extents(nested.size());
  return sizes ? *std::move(sizes) : extents::filled(max_rank, -1);
}

namespace {

// Collects the problems of one shard, each with its rank and box.
class shard_checker {
 public:
  shard_checker(std::vector<error>& problems, const local_shard_facts& shard, std::size_t index, std::int32_t rank)
      : problems_(problems), shard_(shard), index_(index), rank_(rank) {}

  void add(error e) {
    e.message = fmt::format("local shard {}: {}", index_, e.message);
    if (e.ranks.empty()) e = std::move(e).with_rank(rank_);
    if (e.boxes.empty() && shard_.metadata.is_well_formed()) e = std::move(e).with_box(shard_.metadata.where());
    problems_.push_back(std::move(e));
  }
  void add(result<void> checked) {
    if (!checked) add(std::move(checked).error());
  }

  void check_box() {
    const shard_metadata_view& m = shard_.metadata;
    if (!m.is_well_formed())
      add(fail(m.offsets().size() == m.sizes().size() ? errc::out_of_bounds : errc::shape_mismatch,
               "offsets and sizes do not form a box")
              .with_values("as many offsets as sizes, none negative",
                           fmt::format("offsets {}, sizes {}", numbers_text(m.offsets()), numbers_text(m.sizes()))));
    if (m.sizes().size() <= max_rank) add(check_match(extents(m.sizes()), shard_.sizes, "size", rank_));
  }

  void check_place(const rank_group& group) {
    const auto placed = parse_and_validate_remote_device(group, shard_.metadata.placement());
    if (!placed) return add(placed.error());
    if (placed->rank != rank_)
      add(fail(errc::invalid_argument, "its placement is not on this rank")
              .with_values(fmt::format("rank:{}", rank_), to_string(*shard_.metadata.placement())));
    if (shard_.where && *shard_.where != placed->where)
      add(fail(errc::invalid_argument, "its tensor is not on the device of its placement")
              .with_values(to_string(placed->where), to_string(*shard_.where)));
  }

  void check_kind() {
    if (shard_.properties.storage != tensor_storage::strided)
      return add(fail(errc::unsupported, "only strided tensors can be sharded")
                     .with_values("torch.strided", torch_text(shard_.properties.storage)));
    if (shard_.properties.format != memory_format::contiguous || !shard_.is_contiguous)
      add(fail(errc::unsupported, "only row-major (contiguous) tensors can be sharded")
              .with_values(torch_text(memory_format::contiguous), shard_.is_contiguous
                                                                      ? torch_text(shard_.properties.format)
                                                                      : "strides with gaps or in another order"));
  }

  void check_equal(const tensor_properties& first) {
    const tensor_properties& mine = shard_.properties;
    add(check_match(first.type, mine.type, "dtype", rank_));
    add(check_match(first.requires_grad, mine.requires_grad, "requires_grad", rank_));
    add(check_match(first.pin_memory, mine.pin_memory, "pin_memory", rank_));
  }

 private:
  std::vector<error>& problems_;
  const local_shard_facts& shard_;
  std::size_t index_;
  std::int32_t rank_;
};

}  // namespace

std::vector<error> local_shard_problems(std::span<const local_shard_facts> shards, std::int32_t rank,
                                        const rank_group& group) {
  std::vector<error> problems;
  if (rank < 0 || rank >= group.size()) {
    problems.push_back(fail(errc::invalid_argument, "this rank is not in the group")
                           .with_values(fmt::format("0 to {}", group.size() - 1), std::to_string(rank)));
    return problems;
  }
  if (shards.empty())
    problems.push_back(fail(errc::invalid_argument, "this rank has no local shards")
                           .with_rank(group.global(rank))
                           .with_values("at least one", "none"));
  for (const auto& [i, shard] : ranges::views::enumerate(shards)) {
    shard_checker check(problems, shard, i, group.global(rank));
    check.check_box();
    check.check_place(group);
    check.check_kind();
    check.check_equal(shards.front().properties);
  }
  return problems;
}

result<sharded_tensor_metadata> build_metadata(std::span<const local_shard_facts> shards, const extents& global_size,
                                               std::int32_t rank, const rank_group& group) {
  std::vector<error> problems = local_shard_problems(shards, rank, group);
  append(problems, check_shape(global_size));
  if (!problems.empty()) return first_of(std::move(problems));
  sharded_tensor_metadata made{{}, global_size, shards.front().properties};
  made.shards.reserve(shards.size());
  for (const local_shard_facts& one : shards) made.shards.push_back(one.metadata.copy());
  return made;
}

}  // namespace detail

std::vector<error> global_metadata_problems(const gathered_metadata& gathered, const global_metadata_options& options) {
  std::vector<error> problems;
  const auto global = [&](std::size_t i) {
    const auto rank = static_cast<std::int32_t>(i);
    return options.group && rank < options.group->size() ? options.group->global(rank) : rank;
  };
  if (options.group && gathered.size() != static_cast<std::size_t>(options.group->size()))
    problems.push_back(fail(errc::invalid_argument, "metadata is needed from every rank of the group")
                           .with_values(std::to_string(options.group->size()), std::to_string(gathered.size())));
  std::optional<sharded_tensor_metadata_view> first;
  extents first_size;
  std::int32_t first_rank = 0;
  for (std::size_t i = 0; i < gathered.size(); ++i) {
    const auto one = gathered[i];
    if (!one) continue;
    const sharded_tensor_metadata_view& mine = *one;
    const std::int32_t rank = global(i);
    if (options.group)
      for (std::size_t s = 0; s < mine.shards().size(); ++s) {
        const shard_metadata_view shard = mine.shards()[s];
        auto placed = parse_and_validate_remote_device(*options.group, shard.placement());
        if (placed) continue;
        problems.push_back(std::move(placed).error());
        if (shard.has_box()) problems.back() = std::move(problems.back()).with_box(shard.where());
      }
    const auto size = detail::as_extents(mine.size());
    if (!size) {
      problems.push_back(error(size.error()).with_rank(rank));
      continue;
    }
    if (!first) {
      first = mine;
      first_size = *size;
      first_rank = rank;
      continue;
    }
    const tensor_properties &a = first->properties(), &b = mine.properties();
    append(problems, check_match(first_size, *size, "global_size", first_rank, rank));
    append(problems, check_match(a.type, b.type, "dtype", first_rank, rank));
    append(problems, check_match(a.storage, b.storage, "layout", first_rank, rank));
    append(problems, check_match(a.requires_grad, b.requires_grad, "requires_grad", first_rank, rank));
    append(problems, check_match(a.format, b.format, "memory_format", first_rank, rank));
    append(problems, check_match(a.pin_memory, b.pin_memory, "pin_memory", first_rank, rank));
  }
  if (first && options.global_size && first_size != *options.global_size)
    problems.push_back(fail(errc::shape_mismatch, "the metadata is of a tensor of another size")
                           .with_rank(first_rank)
                           .with_values(to_string(*options.global_size), to_string(first_size)));
  return problems;
}

result<sharded_tensor_metadata> build_global_metadata(const gathered_metadata& gathered,
                                                      const global_metadata_options& options) {
  auto problems = global_metadata_problems(gathered, options);
  if (!problems.empty()) return first_of(std::move(problems));
  std::optional<sharded_tensor_metadata> made;
  std::size_t shards = 0;
  for (std::size_t i = 0; i < gathered.size(); ++i) {
    const auto one = gathered[i];
    if (!one) continue;
    shards += one->shards().size();
    if (!made) made = sharded_tensor_metadata{{}, extents(one->size()), one->properties()};
  }
  if (!made && options.global_size) made = sharded_tensor_metadata{{}, *options.global_size, options.properties};
  if (!made)
    return fail(errc::invalid_argument, "no rank has a shard of the tensor")
        .with_values("at least one", fmt::format("none on {} rank{}", gathered.size(), gathered.size() == 1 ? "" : "s"))
        .with_hint("an empty tensor without shards needs its size");
  made->shards.reserve(shards);
  for (std::size_t i = 0; i < gathered.size(); ++i)
    if (const auto one = gathered[i]) SHARDMESH_TRY(append_shards(*made, *one));
  if (options.recalculate) {
    SHARDMESH_TRY(made, recalc_global_sharded_tensor_metadata(*std::move(made), options.dim));
  }
  SHARDMESH_TRY(check_tensor(made->shards, made->size));
  return *std::move(made);
}

}  // namespace shardmesh
