// SPDX-License-Identifier: Apache-2.0
// collective_communicator: communicators with the five data collectives, and these made of messages for those that
// have none of their own. Not here: when a plan uses them (transfer).
export module shardmesh.comm:collectives;

import shardmesh.std;
import shardmesh.core;
import shardmesh.kernels;
import shardmesh.layout;
import :communicator;

export namespace shardmesh {

/// A communicator whose ranks move the same amount of data together. Every rank calls the same collective with buffers
/// of the same size; each returns at once, and buffers live until `wait` returns. Of one tag at most one collective is
/// under way at a time. Terms are combined in an order of the communicator's choice, so sums that round may differ
/// from those of other communicators; `reduce_op::avg` divides by `size()`.
///   all_gather_into  `receive` gets every rank's `send`, in rank order
///   all_to_all       block i of `send` becomes block `rank()` of rank i's `receive`; blocks are equal
///   reduce_scatter   `receive` gets block `rank()` of the combination of all `send`s
///   all_reduce       `receive` gets the combination of all `send`s; both may be the same memory
///   broadcast        `receive` gets the `send` of rank `root`, the root's too; the others' `send` is empty
template <class C>
concept collective_communicator =
    communicator<C> && requires(C& c, std::span<const std::byte> send, std::span<std::byte> receive, dtype type,
                                reduce_op op, const call_options& options) {
      { c.all_gather_into(send, receive, options) } -> std::same_as<result<pending>>;
      { c.all_to_all(send, receive, options) } -> std::same_as<result<pending>>;
      { c.reduce_scatter(send, receive, type, op, options) } -> std::same_as<result<pending>>;
      { c.all_reduce(send, receive, type, op, options) } -> std::same_as<result<pending>>;
      { c.broadcast(send, receive, std::int32_t{}, options) } -> std::same_as<result<pending>>;
    };

/// A group that can exchange, as `communicator` says; what `start` needs outlives the collectives.
struct message_group {
  std::int32_t rank = 0;
  std::int32_t size = 1;
  std::function<result<pending>(std::span<const outgoing>, std::span<const incoming>, const call_options&)> start;
  std::function<void(const error&)> abort{};  // called when this rank cannot take part: no other waits for it
};

/// The collectives made of messages, each byte sent as often as must be: for communicators without better ones. Terms
/// are combined in ascending rank order, in float32 or wider, and rounded once.
/// \errors errc::invalid_argument (sizes that do not fit the group or the dtype), errc::unsupported (a reduction that
///         is not defined on the dtype), each naming the rank; errc::no_memory; those of `start`
/// Cost: `reduce_scatter` and `all_reduce` take memory for the terms of one block of `send`.
result<pending> all_gather_into_by_messages(message_group group, std::span<const std::byte> send,
                                            std::span<std::byte> receive, const call_options& options);
result<pending> all_to_all_by_messages(message_group group, std::span<const std::byte> send,
                                       std::span<std::byte> receive, const call_options& options);
result<pending> reduce_scatter_by_messages(message_group group, std::span<const std::byte> send,
                                           std::span<std::byte> receive, dtype type, reduce_op op,
                                           const call_options& options);
result<pending> all_reduce_by_messages(message_group group, std::span<const std::byte> send,
                                       std::span<std::byte> receive, dtype type, reduce_op op,
                                       const call_options& options);
/// \errors also errc::invalid_argument for a root that the group lacks
result<pending> broadcast_by_messages(message_group group, std::span<const std::byte> send,
                                      std::span<std::byte> receive, std::int32_t root, const call_options& options);

}  // namespace shardmesh
