// SPDX-License-Identifier: Apache-2.0
// c10d_communicator: the ranks of a process group of LibTorch. Not here: how bytes travel (c10d_engine), making groups
// (torch.distributed, which does it in Python).
module;
#include <shardmesh/torch_forward.hpp>
export module shardmesh.torch:c10d_communicator;

import shardmesh.std;
import shardmesh.comm;

namespace shardmesh::c10d_detail {
class engine;
}

export namespace shardmesh {

/// A rank of a c10d::ProcessGroup. Models `collective_communicator`; a cheap handle that shares its state with its
/// copies; every member may be called from any thread, collectives from one at a time.
///
/// Bytes are the host's: the group has a backend for the CPU that receives from any rank (gloo; of "cpu:gloo,cuda:nccl"
/// gloo is used), and tensors on devices are mirrored by the executor. NCCL itself is room nccl. The group stays usable
/// beside it: tags from 2^30 are taken, and no timeout of the group is used, so that errors here close no connections.
///
/// Poison (a deadline that passes, a cancelled call, `abort`, messages of different sizes on the two sides, a rank that
/// has let go of its communicator while others wait for it) reaches every rank: each gets that same error from then on.
/// A rank that died is noticed at the deadline, or when the backend fails. Three threads per communicator move messages
/// until every rank has let go of it. Messages are copied once on each side: user memory is never given to a backend,
/// which could not give it back before the peer comes.
class c10d_communicator {
 public:
  /// The group is kept alive. Ranks make communicators of one group in the same order; at most 1024 live at a time.
  /// Does not block. \errors errc::unsupported: no backend for the CPU, or a communicator of the group that was made
  ///         1024 communicators ago lives in this process (they would have the same tags)
  static result<c10d_communicator> of(c10d::ProcessGroup& group);
  /// The group that torch.distributed has registered under this name (`group.group_name` in Python).
  /// \errors as above; errc::invalid_argument: there is no such group in this process. Of both: errc::unsupported in a
  ///         forked child whose parent has made a communicator, errc::communication when no thread can be started
  static result<c10d_communicator> named(const std::string& group_name);

  std::int32_t rank() const;
  std::int32_t size() const;

  /// Collective; blocks. Every rank sends to every other: meant for control. Any length. errc::deadline_exceeded names
  /// the ranks that did not come.
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& options);
  /// Does not block. errc::invalid_argument names the peer: this rank itself, out of range, named twice or with an
  /// empty message; errc::unsupported: a stream. Nothing is started then. The `pending` of a send of more than 208
  /// bytes is done when the receiver has it; shorter ones are buffered. What LibTorch throws poisons:
  /// errc::communication naming the peer, the call, and the tag, with LibTorch's text; errc::no_memory for
  /// std::bad_alloc.
  result<pending> start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                 const call_options& options);
  /// As `collective_communicator`, made of messages: c10d's own know no tags, so that runs beside each other would have
  /// to start in the same order on every rank. Do not block.
  result<pending> all_gather_into(std::span<const std::byte> send, std::span<std::byte> receive,
                                  const call_options& options);
  result<pending> all_to_all(std::span<const std::byte> send, std::span<std::byte> receive,
                             const call_options& options);
  result<pending> reduce_scatter(std::span<const std::byte> send, std::span<std::byte> receive, dtype type,
                                 reduce_op op, const call_options& options);
  result<pending> all_reduce(std::span<const std::byte> send, std::span<std::byte> receive, dtype type, reduce_op op,
                             const call_options& options);
  result<pending> broadcast(std::span<const std::byte> send, std::span<std::byte> receive, std::int32_t root,
                            const call_options& options);
  /// Poisons the communicator with this reason (and this rank, if it names none), unless it is poisoned already.
  void abort(const error& reason);
  /// As of `communicator_ref`; one set for all handles of this communicator on a rank.
  object_numbers numbers() const;

  /// The error that poisoned the communicator, as far as this rank knows; nothing while it is sound. Does not block.
  result<void> status() const;

 private:
  explicit c10d_communicator(std::shared_ptr<c10d_detail::engine> engine) : engine_(std::move(engine)) {}
  template <class Open>
  static result<c10d_communicator> make(Open&& open);
  std::shared_ptr<c10d_detail::engine> engine_;
};

static_assert(collective_communicator<c10d_communicator>);

}  // namespace shardmesh
