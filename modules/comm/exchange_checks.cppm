// SPDX-License-Identifier: Apache-2.0
// exchange_checks: checks of a call's messages that the transports share. Not for users. Limits of a call are in
// call_guard.
export module shardmesh.comm:exchange_checks;

import shardmesh.std;
import shardmesh.core;
import :communicator;

export namespace shardmesh::detail {

// Checks the messages of a call: each peer is another rank of the group, named once per direction; no message is empty.
// \errors errc::invalid_argument naming the peer. Cost: O(messages * log messages).
result<void> check_peers(std::int32_t rank, std::int32_t size, std::span<const outgoing> sends,
                         std::span<const incoming> receives);

// Makes the errc::invalid_argument for a communicator that a fork copied into the child: it belongs to the parent.
// `hint` tells the child's author what to do instead.
error of_another_process(std::int32_t rank, std::string_view hint);

}  // namespace shardmesh::detail
