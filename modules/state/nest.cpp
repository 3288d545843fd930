// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.state;

import :flattening;

namespace shardmesh::detail {
namespace {

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

open_list outermost(const nest_member& outer) {
  open_list made;
  made.own = &outer;
  made.origin = extents::filled(outer.size.rank(), 0);
  made.position.push_back(0);
  return made;
}

// Opens the list inside the current shard of `list`.
open_list inside_current(const open_list& list) {
  open_list made;
  made.position = list.position;
  made.position.push_back(0);
  return made;
}

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

result<flat_nest> flatten_nest(const nest& members, inner_lookup lookup, const std::optional<rank_group>& wanted) {
  SHARDMESH_TRY(check_same_process(members));
  const nest_member& outer = members.front();
  const std::int32_t me = outer.group.global(outer.rank);
  flat_nest flat;
  flat.shards.reserve(outer.metadata.shards().size());
  std::vector<open_list> open{outermost(outer)};
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
        open_list inner = inside_current(list);
        inner.own = &members[static_cast<std::size_t>(inside)];
        inner.origin = shard.offsets;
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
    open_list inner = inside_current(list);
    inner.others = std::move(known.shards);
    inner.is_final = known.is_final;
    open.push_back(std::move(inner));
  }
  if (!flat.is_changed) return flat;
  SHARDMESH_TRY(check_tensor(flat.shards, outer.size));
  SHARDMESH_TRY(find_group(flat, members, wanted));
  return flat;
}

}  // namespace shardmesh::detail
