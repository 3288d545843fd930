// SPDX-License-Identifier: Apache-2.0
// shared_memory_communicator: a rank that is a process on one machine. Its messages are in engine and segment.
export module shardmesh.shared_memory:shared_memory_communicator;

import shardmesh.std;
import shardmesh.comm;

namespace shardmesh::shared_memory {
class engine;
}

export namespace shardmesh {

/// A rank of a `shared_memory_group`. Models `collective_communicator`. A cheap handle that shares its state with its
/// copies; every member is thread-safe.
///
/// A message of 32 KiB or more is copied once: the receiver reads it out of the sender's memory, if the system allows
/// that. The system usually does so for processes of one user. Smaller messages are copied twice, through the buffer of
/// the pair of ranks. Messages move only while a rank is in a call or waits: there is no background thread. A message
/// that comes through the buffer before its receive was started is kept in a separate allocation of the message's size.
///
/// The group is poisoned by a missed deadline, a cancelled call, `abort`, a size mismatch between sender and receiver,
/// and an exception that leaves a call (from `goes_on`). From then on every rank gets that same error. Ranks notice
/// within 0.1 s when a rank that they wait for has destroyed its communicator, or when its process has ended. In a
/// forked child every call returns errc::invalid_argument, and destroying the child's copy does not affect the other
/// ranks.
class shared_memory_communicator {
 public:
  /// Joins a group as one of its ranks. Collective; blocks until every rank has joined, or until the call's deadline.
  /// \param goes_on  called about 20 times a second by a thread that waits in a call of this rank, including this call;
  ///                 false cancels the call. For programs with other duties meanwhile, such as an interpreter's
  ///                 signals.
  /// \errors errc::invalid_argument: not the token of a group, a rank outside the group, or a rank that has joined
  ///         already; errc::deadline_exceeded names the ranks that did not join; errc::cancelled; errc::io with the
  ///         system's errno: the group's memory cannot be opened (its maker has ended, or runs in another container)
  static result<shared_memory_communicator> join(std::string_view token, std::int32_t rank,
                                                 const call_options& options = {}, std::function<bool()> goes_on = {});

  std::int32_t rank() const;
  std::int32_t size() const;

  /// Gathers bytes of any length from all ranks. Collective; blocks.
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& options);
  /// Starts an exchange. Does not block. errc::invalid_argument for a peer that is this rank, out of range, repeated,
  /// or given an empty message (names it); errc::unsupported for a call with a stream. Nothing is started then.
  result<pending> start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                 const call_options& options);
  /// The collectives of `collective_communicator`, made of messages; they do not block.
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
  /// Poisons the communicator with this reason, and adds this rank if the reason names none. Does nothing when the
  /// communicator is poisoned already.
  void abort(const error& reason);
  /// Returns the rank's live numbers (see `communicator_ref::numbers`); all handles of this communicator on a rank
  /// share one set.
  object_numbers numbers() const;

  /// Returns the error that poisoned the communicator, or success. Does not block.
  result<void> status() const;

 private:
  explicit shared_memory_communicator(std::shared_ptr<shared_memory::engine> engine) : engine_(std::move(engine)) {}
  std::shared_ptr<shared_memory::engine> engine_;
};

static_assert(collective_communicator<shared_memory_communicator>);

}  // namespace shardmesh
