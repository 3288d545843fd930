// SPDX-License-Identifier: Apache-2.0
// sized_messages: messages in host memory whose receivers do not know their sizes. For this room and the rooms above
// it, not for users. Exchanges of messages of known sizes are in communicator.
export module shardmesh.comm:sized_messages;

import shardmesh.std;
import shardmesh.core;
import :communicator;
import :communicator_ref;

export namespace shardmesh::detail {

// Returns whether two ranks can exchange messages in host memory without the others. `all_gather` always can.
bool has_host_messages(communicator_ref comm);

// Moves messages of known sizes, and waits for them. Makes no call if there are none.
result<void> move_messages(communicator_ref comm, std::span<const outgoing> sends, std::span<const incoming> receives,
                           const call_options& call);

// Sends these messages, of which some may be empty, to different ranks. Each costs a message of 8 bytes with its size,
// and one with its bytes, if it has any.
result<void> send_sized(communicator_ref comm, std::span<const outgoing> messages, const call_options& call);

// Receives what each of these ranks sends to this one with `send_sized`, in the order of `senders`.
// \errors errc::bad_format naming the sender of an impossible size, which also aborts the communicator
result<std::vector<std::vector<std::byte>>> receive_sized(communicator_ref comm, std::span<const std::int32_t> senders,
                                                          const call_options& call);

}  // namespace shardmesh::detail
