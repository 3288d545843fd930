// SPDX-License-Identifier: Apache-2.0
// Flattens nested sharded tensors as PyTorch does.
module;
#include <range/v3/view/enumerate.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.state;

import :flattening;

namespace shardmesh::detail {
namespace {

// PyTorch's ShardedTensor lists its shards along the dimension if a chunk spec makes exactly these shards, else as they
// were given. The empty last chunks of a chunk spec start beyond the dimension, so a tensor with shards at its end does
// not match one.
result<std::vector<shard_metadata>> in_torch_order(std::vector<shard_metadata> shards, const extents& size) {
  const sharding_spec spec = infer_sharding_spec_from_shards_metadata(shards);
  const auto* chunks = std::get_if<chunk_sharding_spec>(&spec);
  if (chunks == nullptr) return shards;
  const auto dim =
      static_cast<std::size_t>(chunks->dim < 0 ? chunks->dim + static_cast<std::int32_t>(size.rank()) : chunks->dim);
  const std::int64_t split = split_size(size[dim], static_cast<std::int64_t>(chunks->placements.size()));
  SHARDMESH_TRY(auto made, build_metadata(spec, size));
  for (const auto& [i, shard] : ranges::views::enumerate(made.shards))
    if (shard.offsets[dim] != split * static_cast<std::int64_t>(i)) return shards;
  return std::move(made.shards);
}

}  // namespace

result<flat_nest> flatten_nest_as_torch(const nest& members, const std::optional<rank_group>& wanted) {
  SHARDMESH_TRY(check_same_process(members));
  const nest_member& outer = members.front();
  const nest_member& inner = members[static_cast<std::size_t>(outer.nested.front())];
  const std::int32_t me = outer.group.global(outer.rank);
  if (inner.nested.size() != 1)
    return fail(errc::unsupported, "torch_compatible flattening needs one inner shard on each rank")
        .with_rank(me)
        .with_values("1 local shard in the nested tensor", std::to_string(inner.nested.size()))
        .with_hint("nested_policy::exact takes any number");
  flat_nest flat;
  flat.is_changed = true;
  // Returns the index of this rank's shard, or of its last one if the list has several.
  const auto place_of = [&](const sharded_tensor_metadata_view& metadata) {
    std::size_t place = 0;
    for (std::size_t i = 0; i < metadata.shards().size(); ++i)
      if (metadata.shards()[i].rank() == me) place = i;
    return place;
  };
  const std::size_t mine_at = place_of(outer.metadata), held_at = place_of(inner.metadata);
  const shard_metadata_view mine = outer.metadata.shards()[mine_at], held = inner.metadata.shards()[held_at];
  const extents origin = extents::filled(outer.size.rank(), 0);
  const auto not_mine = [&](shard_metadata shard, device where) {
    where.index = where.type == device_type::cpu ? where.index : std::int16_t{0};
    shard.placement = remote_device{.rank = me > 0 ? 0 : 1, .worker = {}, .where = where};
    flat.shards.push_back(std::move(shard));
  };
  const device where = held.placement()->where;
  for (std::size_t i = 0; i < outer.metadata.shards().size(); ++i) {
    if (i == mine_at) continue;
    SHARDMESH_TRY(auto whole, moved(outer.metadata.shards()[i], outer.size, origin));
    not_mine(std::move(whole), where);
  }
  SHARDMESH_TRY(const auto mine_moved, moved(mine, outer.size, origin));
  SHARDMESH_TRY(const auto held_moved, moved(held, inner.size, mine_moved.offsets));
  for (std::size_t i = 0; i < inner.metadata.shards().size(); ++i) {
    SHARDMESH_TRY(auto whole, moved(inner.metadata.shards()[i], inner.size, mine_moved.offsets));
    // PyTorch identifies an inner shard by its offsets alone. That is harmless for empty shards; a shard with elements
    // that starts where an empty one does is a different shard.
    if (i == held_at || (whole.offsets == held_moved.offsets && whole.where().is_empty())) continue;
    not_mine(std::move(whole), where);
  }
  const shard_metadata& whole = held_moved;
  flat.shards.push_back(whole);
  SHARDMESH_TRY(check_tensor(flat.shards, outer.size));
  SHARDMESH_TRY(flat.shards, in_torch_order(std::move(flat.shards), outer.size));
  flat.local.push_back(
      static_cast<std::size_t>(std::find(flat.shards.begin(), flat.shards.end(), whole) - flat.shards.begin()));
  SHARDMESH_TRY(find_group(flat, members, wanted));
  return flat;
}

}  // namespace shardmesh::detail
