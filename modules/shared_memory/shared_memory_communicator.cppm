// SPDX-License-Identifier: Apache-2.0
// shared_memory_communicator: a rank that is a process of one machine. Not here: how bytes travel (engine, segment).
export module shardmesh.shared_memory:shared_memory_communicator;

import shardmesh.std;
import shardmesh.comm;

namespace shardmesh::shared_memory {
class engine;
}

export namespace shardmesh {

/// A rank of a `shared_memory_group`. Models `collective_communicator`; a cheap handle that shares its state with its
/// copies; every member may be called from any thread.
///
/// Messages of 32 KiB and more are copied once, by the receiver out of the sender's memory (where the system lets it,
/// as it usually does for processes of one user); smaller ones twice, through a buffer of each pair of ranks. They move
/// while a rank is in a call or waits: nothing runs beside the program. Of those that go through the buffer, what comes
/// before its receive was started is kept in memory of its own, as large as it is.
///
/// Poison (a deadline that passes, a cancelled call, `abort`, messages of different sizes on the two sides) reaches
/// every rank: each gets that same error from then on. A rank that has let go of its communicator, or whose process
/// has ended, is noticed by those that wait for it (within 0.1 s). What is thrown out of a call (by `goes_on`) poisons,
/// too. A forked child's copy refuses every call (errc::invalid_argument) and tells the others nothing when it goes.
class shared_memory_communicator {
 public:
  /// Collective; blocks until every rank has joined, or until the call's deadline.
  /// \param goes_on  asked by a thread that waits in a call of this rank, this one included, about 20 times a second;
  ///                 false cancels the call. For programs that must look after other things meanwhile (an interpreter's signals, say).
  /// \errors errc::invalid_argument: a token of no group, a rank outside it, or one that has joined already;
  ///         errc::deadline_exceeded names the ranks that did not come; errc::cancelled; errc::io with the system's
  ///         errno: the group's memory cannot be had (its maker has ended, or runs in another container)
  static result<shared_memory_communicator> join(std::string_view token, std::int32_t rank,
                                                 const call_options& options = {}, std::function<bool()> goes_on = {});

  std::int32_t rank() const;
  std::int32_t size() const;

  /// Collective; blocks. Bytes of any length.
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& options);
  /// Does not block. errc::invalid_argument names the peer: this rank itself, out of range, named twice or with an
  /// empty message; errc::unsupported: a stream. Nothing is started then.
  result<pending> start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                 const call_options& options);
  /// As `collective_communicator`, made of messages. Do not block.
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

  /// The error that poisoned the communicator; nothing while it is sound. Does not block.
  result<void> status() const;

 private:
  explicit shared_memory_communicator(std::shared_ptr<shared_memory::engine> engine) : engine_(std::move(engine)) {}
  std::shared_ptr<shared_memory::engine> engine_;
};

static_assert(collective_communicator<shared_memory_communicator>);

}  // namespace shardmesh
