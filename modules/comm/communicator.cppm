// SPDX-License-Identifier: Apache-2.0
// communicator: a group of ranks that exchange bytes. Not here: transports (models of the concept).
export module shardmesh.comm:communicator;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// Bytes for a peer. They stay as they are until the exchange is waited for.
struct outgoing {
  std::int32_t peer = 0;
  std::span<const std::byte> bytes;
};

/// Room for what a peer sends: exactly as many bytes. Alive until the exchange is waited for.
struct incoming {
  std::int32_t peer = 0;
  std::span<std::byte> bytes;
};

/// A group of ranks 0 .. size() - 1, of which this process is one.
///
/// all_gather: every rank calls it with bytes of any length; every rank gets all of them, in rank order. For control;
/// blocks. start_exchange: involves only the named peers; at most one message per peer and direction, none to oneself,
/// none empty; messages match by (peer, options.tag) in call order, and both sides know the sizes; more than 2 GiB
/// works. It returns at once; buffers live until `wait` returns. With a stream, work is ordered on it and `wait` does
/// not synchronise the device. abort, or a deadline that passes, poisons the communicator: every later call, here and
/// on the peers, gives an error, and `wait` returns only when no transport can touch the buffers any more.
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
