// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <plural.hpp>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/iota.hpp>
#include <range/v3/view/take.hpp>
#include <range/v3/view/transform.hpp>
#include <range/v3/view/zip.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.sharding;

namespace shardmesh {
namespace views = ranges::views;
namespace {

// Checks the spec against the size; returns the dimension that it cuts.
result<std::size_t> cut_dimension(const chunk_sharding_spec& spec, const extents& size) {
  SHARDMESH_TRY(check_shape(size));
  const auto rank = static_cast<std::int64_t>(size.rank());
  if (spec.dim < -rank || spec.dim >= rank)
    return fail(errc::out_of_bounds, fmt::format("invalid sharding dimension {}", spec.dim))
        .with_values(rank == 0 ? "none, a scalar cannot be cut" : fmt::format("{} to {}", -rank, rank - 1),
                     std::to_string(spec.dim));
  const auto cut = static_cast<std::size_t>(spec.dim < 0 ? spec.dim + rank : spec.dim);
  if (spec.placements.empty()) return fail(errc::invalid_argument, "a chunk sharding spec has no placements");
  if (!spec.rule.fits(size[cut], static_cast<std::int64_t>(spec.placements.size())))
    return fail(errc::invalid_argument, "the split rule does not fit the dimension")
        .with_values(
            fmt::format("a rule for {} over {}", size[cut], detail::counted(spec.placements.size(), "placement")),
            fmt::format("one of {}", detail::counted(spec.rule.ends().size(), "size")));
  return cut;
}

result<std::vector<shard_metadata>> shards_of(const chunk_sharding_spec& spec, const extents& size) {
  SHARDMESH_TRY(const std::size_t cut, cut_dimension(spec, size));
  const auto chunks = static_cast<std::int64_t>(spec.placements.size());
  std::vector<shard_metadata> made(spec.placements.size(),
                                   {extents::filled(size.rank(), 0), size, std::optional<remote_device>{}});
  for (const auto& [i, shard, placement] : views::zip(views::iota(std::int64_t{0}), made, spec.placements)) {
    const index_range part = spec.rule.part(size[cut], chunks, i);
    shard.offsets[cut] = part.begin;
    shard.sizes[cut] = part.size;
    shard.placement = placement;
  }
  return made;
}

// The group rank of every placement. \errors naming the placement and the group.
result<std::vector<std::int32_t>> owners_of(const chunk_sharding_spec& spec, const rank_group& group) {
  std::vector<std::int32_t> owners;
  owners.reserve(spec.placements.size());
  for (const auto& [i, placement] : views::enumerate(spec.placements)) {
    SHARDMESH_TRY(const placed_device placed, parse_and_validate_remote_device(group, placement));
    if (!placed.rank)
      return fail(errc::invalid_argument, fmt::format("placement {} names no rank", i))
          .with_values("rank:N/DEVICE", to_string(placement));
    owners.push_back(*group.group_rank(*placed.rank));
  }
  return owners;
}

bool all_different(std::vector<std::int32_t> values) {
  std::sort(values.begin(), values.end());
  return std::adjacent_find(values.begin(), values.end()) == values.end();
}

// The only dimension in which shards have offsets other than 0, when all shards have placements and agree in all other
// sizes.
std::optional<std::size_t> one_cut(std::span<const shard_metadata> shards) {
  std::optional<std::size_t> cut;
  const std::size_t rank = shards.empty() ? 0 : shards.front().sizes.rank();
  for (const shard_metadata& shard : shards) {
    if (!shard.placement || shard.offsets.rank() != rank || shard.sizes.rank() != rank) return std::nullopt;
    for (std::size_t d = 0; d < rank; ++d) {
      if (shard.offsets[d] == 0) continue;
      if (shard.offsets[d] < 0 || (cut && *cut != d)) return std::nullopt;
      cut = d;
    }
  }
  if (!cut) return std::nullopt;
  for (const shard_metadata& shard : shards)
    for (std::size_t d = 0; d < rank; ++d)
      if (shard.sizes[d] < 0 || (d != *cut && shard.sizes[d] != shards.front().sizes[d])) return std::nullopt;
  return cut;
}

// Formats the first elements of a list.
template <class T>
std::string shortened(const std::vector<T>& list) {
  constexpr std::size_t most = 16;
  const auto first = list | views::take(most) | views::transform([](const T& one) { return to_string(one); });
  return fmt::format("{}{}", fmt::join(first | ranges::to<std::vector>(), ", "), list.size() > most ? ", .." : "");
}

std::string_view policy_name(split_policy policy) {
  switch (policy) {
    case split_policy::torch_chunk:
      return "torch_chunk";
    case split_policy::balanced:
      return "balanced";
    case split_policy::explicit_sizes:
      return "explicit";
    case split_policy::weighted:
      return "weighted";
  }
  return {};
}

}  // namespace

std::string to_string(const chunk_sharding_spec& spec) {
  const std::string chunk = fmt::format("{} chunk", policy_name(spec.rule.policy()));
  return fmt::format("{} along dimension {} on {}", detail::counted(spec.placements.size(), chunk), spec.dim,
                     shortened(spec.placements));
}

std::string to_string(const enumerable_sharding_spec& spec) {
  return fmt::format("{}: {}", detail::counted(spec.shards.size(), "shard"), shortened(spec.shards));
}

std::string to_string(const sharding_spec& spec) {
  return std::visit([](const auto& one) { return to_string(one); }, spec);
}

result<sharded_tensor_metadata> build_metadata(const sharding_spec& spec, const extents& size,
                                               const tensor_properties& properties) {
  if (const auto* chunks = std::get_if<chunk_sharding_spec>(&spec)) {
    SHARDMESH_TRY(auto shards, shards_of(*chunks, size));
    return sharded_tensor_metadata{std::move(shards), size, properties};
  }
  const auto& listed = *std::get_if<enumerable_sharding_spec>(&spec);
  SHARDMESH_TRY(check_tensor(listed.shards, size));
  return sharded_tensor_metadata{listed.shards, size, properties};
}

result<distribution> distribution_of(const sharding_spec& spec, const extents& size, const rank_group& group) {
  if (const auto* chunks = std::get_if<chunk_sharding_spec>(&spec)) {
    SHARDMESH_TRY(const std::size_t cut, cut_dimension(*chunks, size));
    SHARDMESH_TRY(auto owners, owners_of(*chunks, group));
    if (all_different(owners)) {
      const auto count = static_cast<std::int64_t>(owners.size());
      SHARDMESH_TRY(auto mesh, device_mesh::make(std::span(&count, 1), {}, std::move(owners)));
      SHARDMESH_TRY(
          const auto chunked,
          layout::make(std::move(mesh), {placement::shard(static_cast<std::int32_t>(cut))}, size, chunks->rule));
      return distribute(chunked);
    }
  }
  SHARDMESH_TRY(const auto metadata, build_metadata(spec, size));
  return distribution_of(metadata, group);
}

sharding_spec infer_sharding_spec_from_shards_metadata(const shard_metadata_list& list) {
  enumerable_sharding_spec listed;
  listed.shards.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) listed.shards.push_back(list[i].copy());
  const std::vector<shard_metadata>& shards = listed.shards;
  const auto cut = one_cut(shards);
  if (!cut) return listed;
  std::vector<const shard_metadata*> along;  // sorted along the cut dimension; empty shards keep their order
  for (const shard_metadata& shard : shards) along.push_back(&shard);
  std::ranges::stable_sort(along, {}, [&](const shard_metadata* shard) { return shard->offsets[*cut]; });
  std::int64_t length = 0;
  for (const shard_metadata& shard : shards) {
    const auto sum = checked_add(length, shard.sizes[*cut]);
    if (!sum) return listed;
    length = *sum;
  }
  chunk_sharding_spec made{static_cast<std::int32_t>(*cut), {}, {}};
  const auto chunks = static_cast<std::int64_t>(shards.size());
  for (const auto& [i, shard] : views::zip(views::iota(std::int64_t{0}), along)) {
    const index_range part = made.rule.part(length, chunks, i);
    const bool is_here = part.size > 0 ? shard->offsets[*cut] == part.begin : shard->offsets[*cut] >= length;
    if (shard->sizes[*cut] != part.size || !is_here) return listed;
    made.placements.push_back(*shard->placement);
  }
  return made;
}

result<index_range> chunk_sharding_params(std::int64_t dim_size, const chunk_sharding_spec& spec, std::int32_t rank) {
  const auto chunks = static_cast<std::int64_t>(spec.placements.size());
  if (dim_size < 0 || chunks == 0 || !spec.rule.fits(dim_size, chunks))
    return fail(errc::invalid_argument, "the dimension cannot be cut by this spec")
        .with_values("a size of at least 0 that fits the rule, and placements",
                     fmt::format("size {}, {}", dim_size, detail::counted(chunks, "placement")));
  for (const auto& [i, placement] : views::zip(views::iota(std::int64_t{0}), spec.placements))
    if (placement.rank == rank) return spec.rule.part(dim_size, chunks, i);
  return fail(errc::invalid_argument, "no chunk of the spec is on this rank")
      .with_rank(rank)
      .with_values(fmt::format("a rank of one of {}", detail::counted(chunks, "placement")), std::to_string(rank));
}

}  // namespace shardmesh
