// SPDX-License-Identifier: Apache-2.0
// exchange_checks: checks of a call and error texts that the transports share. Not for users. Each transport is in a
// file of its own.
export module shardmesh.comm:exchange_checks;

import shardmesh.std;
import shardmesh.core;
import :communicator;

export namespace shardmesh::detail {

// Checks the messages of a call: each peer is another rank of the group, named once per direction; no message is empty.
// \errors errc::invalid_argument naming the peer. Cost: O(messages * log messages).
result<void> check_peers(std::int32_t rank, std::int32_t size, std::span<const outgoing> sends,
                         std::span<const incoming> receives);

// Makes the errc::deadline_exceeded of a rank that waited for messages from the senders `senders`, and for the
// receivers `takers` to take its own. `part` names the call, in the form that part_of_call returns.
error waited_in_vain(std::int32_t rank, std::string_view part, std::uint32_t tag, std::vector<std::int32_t> senders,
                     std::vector<std::int32_t> takers);

// Makes the errc::invalid_argument for a communicator that a fork copied into the child: it belongs to the parent.
// `hint` tells the child's author what to do instead.
error of_another_process(std::int32_t rank, std::string_view hint);

}  // namespace shardmesh::detail
