// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <range/v3/action/sort.hpp>
#include <range/v3/action/unique.hpp>
#include <range/v3/view/enumerate.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.state;

namespace shardmesh::detail {
namespace {

// Moves a shard of a tensor of these sizes into the coordinates of the whole tensor, in which the tensor starts at
// `origin`.
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

// Chooses the group of the flat tensor: the wanted one, or the members' common group if it has the ranks of all shards.
// Otherwise makes a group of all ranks of the members and shards.
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

// A list of shards that is being processed: those of a member on this rank, or the known ones inside another rank's
// shard.
struct open_list {
  const nest_member* own = nullptr;
  std::vector<shard_metadata> others{};
  bool is_final = false;
  extents origin{};
  nest_position position{};  // of the shard that contains the list, then of the list's current shard
  std::size_t next = 0, next_local = 0;

  // If all of this rank's own shards are plain, other ranks' shards count as plain.
  bool is_plain() const {
    return own != nullptr && !own->nested.empty() &&
           std::all_of(own->nested.begin(), own->nested.end(), [](std::int32_t inside) { return inside < 0; });
  }
  std::int32_t level() const { return static_cast<std::int32_t>(position.size()) - 1; }
};

}  // namespace

result<std::vector<shard_metadata>> inside_of(const shard_metadata& shard, const sharded_tensor_metadata& inner) {
  if (inner.size != shard.sizes)
    return at_shard(fail(errc::shape_mismatch, "the inner metadata of a shard does not have the shard's sizes")
                        .with_values(to_string(shard.sizes), to_string(inner.size)),
                    shard);
  std::vector<shard_metadata> made;
  made.reserve(inner.shards.size());
  for (const shard_metadata& one : inner.shards) {
    SHARDMESH_TRY(auto whole, moved(one, inner.size, shard.offsets));
    made.push_back(std::move(whole));
  }
  return made;
}

result<void> check_member(const nest_member& member, std::span<const shard_metadata_view> local) {
  if (member.rank < 0 || member.rank >= member.group.size())
    return fail(errc::invalid_argument, "this rank is not in the group")
        .with_values(fmt::format("0 to {}", member.group.size() - 1), std::to_string(member.rank));
  const std::int32_t me = member.group.global(member.rank);
  std::size_t listed = 0;
  for (std::size_t i = 0; i < member.metadata.shards().size(); ++i) {
    const shard_metadata_view shard = member.metadata.shards()[i];
    if (shard.rank() != me) continue;
    if (listed == local.size())
      return at_shard(fail(errc::invalid_argument, "the metadata gives this rank a shard that it does not hold"),
                      shard);
    const shard_metadata_view& held = local[listed++];
    if (!std::ranges::equal(shard.offsets(), held.offsets()) || !std::ranges::equal(shard.sizes(), held.sizes()))
      return at_shard(fail(errc::invalid_argument, "a local shard is not the metadata's shard at its place")
                          .with_values(to_string(shard), to_string(held)),
                      held);
  }
  if (listed < local.size())
    return at_shard(fail(errc::invalid_argument, "a local shard is not one of this rank's shards in the metadata")
                        .with_rank(me)
                        .with_values(fmt::format("{} local shards", listed), std::to_string(local.size())),
                    local[listed]);
  return {};
}

result<flat_nest> flatten_nest(const nest& members, inner_lookup lookup, const std::optional<rank_group>& wanted) {
  SHARDMESH_TRY(check_same_process(members));
  const nest_member& outer = members.front();
  const std::int32_t me = outer.group.global(outer.rank);
  flat_nest flat;
  flat.shards.reserve(outer.metadata.shards().size());
  std::vector<open_list> open(1);
  open.back().own = &outer;
  open.back().origin = extents::filled(outer.size.rank(), 0);
  open.back().position.push_back(0);
  while (!open.empty()) {
    open_list& list = open.back();
    if (list.next == (list.own ? list.own->metadata.shards().size() : list.others.size())) {
      open.pop_back();
      continue;
    }
    const std::size_t at = list.next++;
    list.position.back() = static_cast<std::int32_t>(at);
    if (list.own == nullptr && list.is_final) {
      flat.shards.push_back(std::move(list.others[at]));
      continue;
    }
    shard_metadata shard;
    if (list.own == nullptr) {
      shard = std::move(list.others[at]);
    } else {
      SHARDMESH_TRY(shard, moved(list.own->metadata.shards()[at], list.own->size, list.origin));
      if (shard.rank() == me) {
        const std::int32_t inside = list.own->nested[list.next_local++];
        if (inside < 0) {
          flat.local.push_back(flat.shards.size());
          flat.shards.push_back(std::move(shard));
          continue;
        }
        flat.is_changed = true;
        open_list inner;
        inner.own = &members[static_cast<std::size_t>(inside)];
        inner.origin = shard.offsets;
        inner.position = list.position;
        inner.position.push_back(0);
        open.push_back(std::move(inner));
        continue;
      }
    }
    SHARDMESH_TRY(auto known, lookup(list.position, shard));
    if (known.kind != inner_answer::what::inner) {
      flat.unknown += known.kind == inner_answer::what::unknown && !list.is_plain() ? 1 : 0;
      flat.shards.push_back(std::move(shard));
      continue;
    }
    if (list.level() + 1 > max_shard_nesting)
      return at_shard(fail(errc::invalid_argument, "sharded tensors are nested too deeply")
                          .with_values(fmt::format("at most {}", max_shard_nesting), "more"),
                      shard);
    flat.is_changed = true;
    open_list inner;
    inner.others = std::move(known.shards);
    inner.is_final = known.is_final;
    inner.position = list.position;
    inner.position.push_back(0);
    open.push_back(std::move(inner));
  }
  if (!flat.is_changed) return flat;
  SHARDMESH_TRY(check_tensor(flat.shards, outer.size));
  SHARDMESH_TRY(find_group(flat, members, wanted));
  return flat;
}

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

result<void> check_properties(const tensor_properties& claimed, const tensor_properties& found, bool only_dtype,
                              const shard_metadata& where) {
  if (claimed.type != found.type)
    return at_shard(fail(errc::dtype_mismatch, "a local tensor does not have the dtype of the sharded tensor")
                        .with_values(std::string(name(claimed.type)), std::string(name(found.type))),
                    where);
  if (only_dtype || claimed == found) return {};
  return at_shard(fail(errc::invalid_argument, "a local tensor does not have the properties of the sharded tensor")
                      .with_values(to_string(claimed), to_string(found)),
                  where);
}

std::vector<torch_item> torch_items(const tree_spec& spec, std::span<const std::uint8_t> is_tensor) {
  const std::vector<std::uint8_t> whole = kept_whole(spec, is_tensor, key_policy::torch_dcp);
  const std::vector<std::size_t> parents = spec.parents();
  const auto nodes = spec.nodes();
  const auto keys = spec.keys();
  std::vector<std::uint8_t> is_entered(nodes.size(), 0);
  for (std::size_t node = nodes.size(); node-- > 0;)  // parents before children
    is_entered[node] = whole[node] == 0 && (parents[node] == node || is_entered[parents[node]] != 0);
  std::vector<torch_item> items;
  std::size_t leaf = 0;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    leaf += nodes[node].kind == node_kind::leaf ? 1 : 0;
    if (whole[node] == 0 || (parents[node] != node && is_entered[parents[node]] == 0)) continue;
    std::vector<path_key> reversed;
    for (std::size_t at = node; parents[at] != at; at = parents[at]) {
      const bool is_name = nodes[parents[at]].kind == node_kind::mapping && keys[at].is_index();
      reversed.push_back(is_name ? path_key(std::to_string(keys[at].index())) : keys[at]);
    }
    std::reverse(reversed.begin(), reversed.end());
    items.push_back({path(std::move(reversed)), node, leaf - static_cast<std::size_t>(nodes[node].leaves)});
  }
  return items;
}

}  // namespace shardmesh::detail
