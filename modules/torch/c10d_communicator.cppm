// SPDX-License-Identifier: Apache-2.0
// c10d_communicator: the ranks of a process group of LibTorch. Moving bytes is in c10d_engine; torch.distributed makes
// groups, in Python.
module;
#include <shardmesh/torch_forward.hpp>
export module shardmesh.torch:c10d_communicator;

import shardmesh.std;
import shardmesh.comm;

namespace shardmesh::c10d_detail {
class engine;
}

export namespace shardmesh {

/// A rank of a c10d::ProcessGroup. Models `collective_communicator`. A cheap handle that shares its state with its
/// copies. Any thread may call any member, but only one thread at a time may call collectives.
///
/// Messages are in host memory. The group needs a backend for the CPU that receives from any rank (gloo; of
/// "cpu:gloo,cuda:nccl", gloo is used), and the executor moves tensors on devices through staging copies in host
/// memory. NCCL itself is in room nccl. The group stays usable at the same time: the communicator uses tags from 2^30
/// on and no timeout of the group, so that errors here close no connections.
///
/// The communicator is poisoned by a missed deadline, a cancelled call, `abort`, a size mismatch between sender and
/// receiver, and a rank that releases its communicator while others wait for it. From then on every rank gets that same
/// error. A rank that died is noticed at the deadline, or when the backend fails. Three threads per communicator move
/// messages until every rank has released it. Messages are copied once on each side: a backend never gets user memory,
/// because it could not release that memory before the peer arrives.
class c10d_communicator {
 public:
  /// Makes a communicator that keeps the group alive. All ranks must make the communicators of one group in the same
  /// order; at most 1024 live at a time. Does not block. \errors errc::unsupported: no backend for the CPU, or a
  /// communicator that the group made 1024 earlier still lives in this process (both would have the same tags)
  static result<c10d_communicator> of(c10d::ProcessGroup& group);
  /// Makes a communicator of the group that torch.distributed has registered under this name (`group.group_name` in
  /// Python).
  /// \errors as above; errc::invalid_argument: this process has no such group. For both functions: errc::unsupported in
  ///         a forked child whose parent has made a communicator, errc::communication if no thread can be started
  static result<c10d_communicator> named(const std::string& group_name);

  std::int32_t rank() const;
  std::int32_t size() const;

  /// Gathers bytes of any length from all ranks. Collective; blocks. Every rank sends to every other rank, so use it
  /// for control messages. errc::deadline_exceeded names the ranks that did not arrive.
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& options);
  /// Starts an exchange. Does not block. errc::invalid_argument for a peer that is this rank, out of range, repeated,
  /// or given an empty message (names it); errc::unsupported for a call with a stream. Nothing is started then. The
  /// `pending` of a send of more than 208 bytes is done when the receiver has it; shorter sends are buffered. An
  /// exception of LibTorch poisons the communicator: errc::communication naming the peer, the call, and the tag, with
  /// LibTorch's text; errc::no_memory for std::bad_alloc.
  result<pending> start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                 const call_options& options);
  /// The collectives of `collective_communicator`, made of messages; they do not block. c10d's own collectives have no
  /// tags, so concurrent runs would have to start in the same order on every rank.
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
  /// Poisons the communicator with this reason (and this rank, if it names none), unless it is already poisoned.
  void abort(const error& reason);
  /// Returns the rank's live numbers (see `communicator_ref::numbers`); all handles of this communicator on a rank
  /// share one set.
  object_numbers numbers() const;

  /// Returns the error that poisoned the communicator, as far as this rank knows, or success. Does not block.
  result<void> status() const;

 private:
  explicit c10d_communicator(std::shared_ptr<c10d_detail::engine> engine) : engine_(std::move(engine)) {}
  template <class Open>
  static result<c10d_communicator> make(Open&& open);
  std::shared_ptr<c10d_detail::engine> engine_;
};

static_assert(collective_communicator<c10d_communicator>);

}  // namespace shardmesh
