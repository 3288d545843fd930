// SPDX-License-Identifier: Apache-2.0
// collective_communicator: communicators with the five data collectives, and the same collectives as messages, for
// communicators that have none of their own. Room transfer decides when a plan uses them.
export module shardmesh.comm:collectives;

import shardmesh.std;
import shardmesh.core;
import shardmesh.kernels;
import shardmesh.layout;
import :communicator;

export namespace shardmesh {

/// A communicator whose ranks move the same amount of data together. Every rank calls the same collective with buffers
/// of the same size. The call returns at once; buffers must live until `wait` returns. At most one collective per tag
/// is in progress at a time. The communicator chooses the order in which it combines terms, so sums that round may
/// differ between communicators. `reduce_op::avg` divides by `size()`.
///   all_gather_into  `receive` gets every rank's `send`, in rank order
///   all_to_all       block i of `send` becomes block `rank()` of rank i's `receive`; all blocks have the same size
///   reduce_scatter   `receive` gets block `rank()` of the combination of all `send`s
///   all_reduce       `receive` gets the combination of all `send`s; both may be the same memory
///   broadcast        every rank's `receive`, the root's included, gets the root's `send`; all other `send`s are empty
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

/// A group of ranks that can exchange messages, with the rules of `communicator`. Everything that `start` refers to
/// must outlive the collectives.
struct message_group {
  std::int32_t rank = 0;
  std::int32_t size = 1;
  std::function<result<pending>(std::span<const outgoing>, std::span<const incoming>, const call_options&)> start;
  std::function<void(const error&)> abort{};  // called when this rank cannot take part, so no other rank waits for it
};

/// Runs a collective as messages, for communicators without a better one; no byte is sent more often than necessary.
/// Terms are combined in ascending rank order, in float32 or wider, and rounded once.
/// \errors errc::invalid_argument (sizes that do not fit the group or the dtype), errc::unsupported (a reduction that
///         is not defined on the dtype), each naming the rank; errc::no_memory; the errors of `start`
/// Cost: `reduce_scatter` and `all_reduce` allocate memory for the terms of one block of `send`.
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
