// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.fsdp;

namespace shardmesh {
namespace {

result<void> check_mesh_dimension(const layout& l, std::size_t dim) {
  if (dim < l.mesh().rank()) return {};
  return fail(errc::out_of_bounds, "the mesh has no such dimension")
      .with_values(fmt::format("a dimension below {}", l.mesh().rank()), std::to_string(dim));
}

result<layout> with_placement(const layout& l, std::size_t dim, const placement& p) {
  std::vector<placement> placements = l.placements();
  placements[dim] = p;
  return layout::make(l.mesh(), std::move(placements), l.shape(), l.rules());
}

}  // namespace

namespace detail {

result<rank_group> numbering_of(const rank_group& given, std::int32_t ranks, bool may_be_more) {
  if (given.size() == ranks || (may_be_more && given.size() > ranks)) return given;
  if (given == rank_group()) return rank_group::world(ranks);
  return fail(errc::invalid_argument, "the numbering of the ranks does not have one number for each rank")
      .with_values(fmt::format("{}{} ranks, or none", may_be_more ? "at least " : "", ranks),
                   fmt::format("{}: {}", given.size(), to_string(given)));
}

remote_device placement_of_other(std::int32_t global_rank, device where, std::int32_t devices_per_node) {
  if (where.type != device_type::cpu)
    where.index = static_cast<std::int16_t>(devices_per_node > 0 ? global_rank % devices_per_node : -1);
  return {global_rank, {}, where};
}

result<void> check_one_name(std::int32_t outside, std::int32_t inside) {
  if (outside == inside) return {};
  return fail(errc::invalid_argument, "the group numbers this rank differently from the tensor that it cuts")
      .with_values(fmt::format("global rank {}", outside), fmt::format("global rank {}", inside))
      .with_hint("also pass the global ranks of the mesh's ranks");
}

}  // namespace detail

bool is_listed_chunk(const box& chunk, const extents& shape) {
  for (std::size_t d = 0; d < shape.rank(); ++d)
    if (chunk.sizes[d] == 0 && shape[d] != 0) return false;
  return true;
}

result<std::vector<box>> chunk_boxes(const extents& shape, std::int32_t parts, const chunk_options& options) {
  if (parts < 1)
    return fail(errc::invalid_argument, "a tensor must be cut over at least one rank")
        .with_values("at least 1", std::to_string(parts));
  if (shape.rank() == 0) return std::vector{box::whole(shape)};
  std::vector<box> chunks(static_cast<std::size_t>(parts), box::whole(shape));
  const auto rank = static_cast<std::int32_t>(shape.rank());
  std::int32_t dim = options.dim < 0 ? options.dim + rank : options.dim;
  if (dim < 0 || dim >= rank)
    return fail(errc::out_of_bounds, "the tensor has no such dimension to shard")
        .with_values(fmt::format("-{} to {}", rank, rank - 1), std::to_string(options.dim));
  const auto d = static_cast<std::size_t>(dim);
  if (!options.rule.fits(shape[d], parts))
    return fail(errc::invalid_argument, "the split rule does not fit the dimension")
        .with_values(fmt::format("{} over {} ranks", shape[d], parts), to_string(options.rule));
  for (std::int32_t p = 0; p < parts; ++p) {
    const index_range part = options.rule.part(shape[d], parts, p);
    chunks[static_cast<std::size_t>(p)].offsets[d] = part.begin;
    chunks[static_cast<std::size_t>(p)].sizes[d] = part.size;
  }
  return chunks;
}

result<sharded_tensor_metadata> chunk_metadata(const extents& shape, const tensor_properties& properties,
                                               const rank_group& group, device where, const chunk_options& options) {
  SHARDMESH_TRY(const auto chunks, chunk_boxes(shape, group.size(), options));
  sharded_tensor_metadata made{{}, shape, properties};
  for (std::size_t p = 0; p < chunks.size(); ++p)
    if (is_listed_chunk(chunks[p], shape))
      made.shards.push_back(
          {chunks[p].offsets, chunks[p].sizes,
           detail::placement_of_other(group.global(static_cast<std::int32_t>(p)), where, options.devices_per_node)});
  return made;
}

result<sharded_tensor_metadata> shards_of_layout(const layout& l, const tensor_properties& properties,
                                                 std::int32_t rank, const rank_group& ranks, device where,
                                                 std::int32_t devices_per_node) {
  if (l.reduction() != reduce_op::none)
    return fail(errc::mixed_partial, "the terms of a Partial tensor are not shards")
        .with_values("shards and replicas", to_string(l.placements()));
  SHARDMESH_TRY(const rank_group numbering, detail::numbering_of(ranks, l.mesh().rank_limit(), true));
  SHARDMESH_TRY(const distribution all, distribute(l));
  std::map<box, owner_id> holders;
  all.for_each_owner([&](owner_id owner) {
    all.fragments_of(owner, [&](const fragment& f) {
      const auto held = holders.emplace(f.where, owner).first;
      if (owner == rank) held->second = rank;
      return true;
    });
  });
  sharded_tensor_metadata made{{}, l.shape(), properties};
  for (const auto& [where_held, owner] : holders) {
    const std::int32_t global = numbering.global(owner);
    made.shards.push_back({where_held.offsets, where_held.sizes,
                           owner == rank ? remote_device{global, {}, where}
                                         : detail::placement_of_other(global, where, devices_per_node)});
  }
  return made;
}

result<layout> chunk_layout(const layout& l, std::size_t fsdp_dim, std::int32_t dim) {
  SHARDMESH_TRY(check_mesh_dimension(l, fsdp_dim));
  if (l.placements()[fsdp_dim].kind != placement_kind::replicate)
    return fail(errc::invalid_argument, "the mesh dimension that FSDP cuts along is in use already")
        .with_values("R", to_string(l.placements()[fsdp_dim]));
  if (l.shape().rank() == 0) return l;
  return with_placement(l, fsdp_dim, placement::shard(dim));
}

result<layout> gathered_layout(const layout& l, std::size_t fsdp_dim) {
  SHARDMESH_TRY(check_mesh_dimension(l, fsdp_dim));
  return with_placement(l, fsdp_dim, placement::replicate());
}

}  // namespace shardmesh
