// SPDX-License-Identifier: Apache-2.0
// Checks of nested sharded tensors against what a process holds.
module;
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
module shardmesh.state;

namespace shardmesh::detail {

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

}  // namespace shardmesh::detail
