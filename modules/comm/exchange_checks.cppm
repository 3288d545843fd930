// SPDX-License-Identifier: Apache-2.0
// exchange_checks: what every communicator made of messages says of a call that is wrong, in one text. Not for users,
// and not here: how messages travel (the models).
export module shardmesh.comm:exchange_checks;

import shardmesh.std;
import shardmesh.core;
import :communicator;

export namespace shardmesh::detail {

// The peers of one call are other ranks of the group, each named once, and no message is empty.
// \errors errc::invalid_argument naming the peer. Cost: O(messages * log messages).
result<void> check_peers(std::int32_t rank, std::int32_t size, std::span<const outgoing> sends,
                         std::span<const incoming> receives);

// errc::deadline_exceeded of a rank that waited for messages of `givers`, and for its own to be taken by `takers`.
// `part`: as part_of_call says it.
error waited_in_vain(std::int32_t rank, std::string_view part, std::uint32_t tag, std::vector<std::int32_t> givers,
                     std::vector<std::int32_t> takers);

// errc::invalid_argument of a rank that a fork copied: it belongs to the parent. `hint`: what the child can do instead.
error of_another_process(std::int32_t rank, std::string_view hint);

}  // namespace shardmesh::detail
