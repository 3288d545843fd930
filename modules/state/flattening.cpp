// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <range/v3/action/sort.hpp>
#include <range/v3/action/unique.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.state;

import :flattening;

namespace shardmesh::detail {

result<shard_metadata> moved(const shard_metadata_view& shard, const extents& sizes, const extents& origin) {
  if (shard.sizes().size() != sizes.rank() || shard.offsets().size() != sizes.rank())
    return at_shard(fail(errc::shape_mismatch, "a shard has a different number of dimensions than its tensor")
                        .with_values(std::to_string(sizes.rank()), std::to_string(shard.sizes().size())),
                    shard);
  if (!shard.is_well_formed() || !lies_within(shard.where(), box::whole(sizes)))
    return at_shard(fail(errc::out_of_bounds, "a shard extends beyond its tensor of sizes " + to_string(sizes)), shard);
  shard_metadata made = shard.copy();
  made.offsets = shifted(shard.where(), origin).offsets;
  return made;
}

result<void> check_same_process(const nest& members) {
  const nest_member& outer = members.front();
  for (const nest_member& inner : members) {
    if (inner.group.global(inner.rank) != outer.group.global(outer.rank))
      return fail(errc::invalid_argument, "nested sharded tensors are of different ranks")
          .with_values(fmt::format("rank {}", outer.group.global(outer.rank)),
                       fmt::format("rank {}", inner.group.global(inner.rank)));
    if (inner.metadata.properties().type != outer.metadata.properties().type)
      return fail(errc::dtype_mismatch, "nested sharded tensors have different dtypes")
          .with_rank(outer.group.global(outer.rank))
          .with_values(std::string(name(outer.metadata.properties().type)),
                       std::string(name(inner.metadata.properties().type)));
  }
  return {};
}

result<void> find_group(flat_nest& flat, const nest& members, const std::optional<rank_group>& wanted) {
  const nest_member& outer = members.front();
  const std::int32_t me = outer.group.global(outer.rank);
  const auto has_all = [&](const rank_group& group) {
    return std::all_of(flat.shards.begin(), flat.shards.end(), [&](const shard_metadata& shard) {
      return !shard.rank() || group.group_rank(*shard.rank()).has_value();
    });
  };
  if (wanted) {
    for (const shard_metadata& shard : flat.shards)
      if (shard.rank() && !wanted->group_rank(*shard.rank()))
        return at_shard(fail(errc::invalid_argument, "a shard is on a rank that is not in the group")
                            .with_values("one of " + to_string(*wanted), std::to_string(*shard.rank())),
                        shard);
    flat.group = *wanted;
  } else if (has_all(outer.group) && std::all_of(members.begin(), members.end(), [&](const nest_member& inner) {
               return inner.group == outer.group;
             })) {
    flat.group = outer.group;
  } else {
    std::vector<std::int32_t> ranks;
    for (const nest_member& inner : members) {
      const std::vector<std::int32_t> more = inner.group.globals();
      ranks.insert(ranks.end(), more.begin(), more.end());
    }
    for (const shard_metadata& shard : flat.shards)
      if (shard.rank()) ranks.push_back(*shard.rank());
    ranks |= ranges::actions::sort | ranges::actions::unique;
    SHARDMESH_TRY(flat.group, rank_group::make(std::move(ranks)));
  }
  const auto rank = flat.group.group_rank(me);
  if (!rank)
    return fail(errc::invalid_argument, "this rank is not in the group")
        .with_rank(me)
        .with_values("one of " + to_string(flat.group), std::to_string(me));
  flat.rank = *rank;
  return {};
}

}  // namespace shardmesh::detail
