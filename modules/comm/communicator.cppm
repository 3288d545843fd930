// SPDX-License-Identifier: Apache-2.0
// The communicator concept: a group of ranks that exchange bytes. The transports that model it are in other files and
// rooms.
export module shardmesh.comm:communicator;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// Bytes to send to a peer. They must stay alive and unchanged until `wait` on the exchange returns.
struct outgoing {
  std::int32_t peer = 0;
  std::span<const std::byte> bytes;
};

/// The buffer for a peer's message, of exactly the message's size. It must live until `wait` on the exchange returns.
struct incoming {
  std::int32_t peer = 0;
  std::span<std::byte> bytes;
};

/// A group of ranks 0 .. size() - 1, of which this process is one.
///
/// all_gather: every rank passes bytes of any length and receives the bytes of all ranks, in rank order. For control
/// data; blocks.
/// start_exchange: involves only the named peers, with at most one message per peer and direction. No message is empty,
/// and no rank sends to itself. Messages match by (peer, options.tag) in call order; both sides know the sizes.
/// Messages of more than 2 GiB work. The call returns at once; buffers must live until `wait` returns. With a stream,
/// the work is ordered on it, and `wait` does not synchronise the device.
/// abort, or a missed deadline, poisons the communicator: every later call returns an error, here and on the peers.
/// The message of a deadline's error names the operation, `options.name`, `options.tag`, and the time waited; its
/// `ranks` are the peers that were waited for. `wait` returns only when no transport can touch the buffers any more.
template <class C>
concept communicator =
    requires(C& c, const C& constant, std::span<const std::byte> bytes, const call_options& options,
             std::span<const outgoing> sends, std::span<const incoming> receives, const error& reason) {
      { constant.rank() } -> std::convertible_to<std::int32_t>;
      { constant.size() } -> std::convertible_to<std::int32_t>;
      { c.all_gather(bytes, options) } -> std::same_as<result<std::vector<std::vector<std::byte>>>>;
      { c.start_exchange(sends, receives, options) } -> std::same_as<result<pending>>;
      { c.abort(reason) } -> std::same_as<void>;
    };

}  // namespace shardmesh
