// SPDX-License-Identifier: Apache-2.0
// thread_group: ranks that are threads of one process. The embedded default, and the simulator for tests of distributed
// code. run_ranks starts the threads; ranks in several processes are optional rooms.
export module shardmesh.comm:thread_group;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :communicator;
import :lending;
import :object_numbers;

namespace shardmesh {
struct thread_state;
}

export namespace shardmesh {

/// One rank's handle to a thread_group; keeps the group alive. Models `collective_communicator` and
/// `memory_sharing_communicator`.
/// A message is one copy from the sender's buffer into the receiver's. Up to 64 KiB, the second rank to start the
/// message copies it. Above that, the first rank to wait after both have started it does.
/// These events poison the group: a missed deadline, a cancelled call, `abort`, a size mismatch between sender and
/// receiver, and a rank that leaves while others wait for it. From then on, every rank gets that same error.
/// A call with a stream starts nothing and returns errc::unsupported, because threads exchange host memory only. Every
/// member is thread-safe. In a forked child every call returns errc::invalid_argument, except `abort`, which does
/// nothing.
class thread_communicator {
 public:
  std::int32_t rank() const { return rank_; }
  std::int32_t size() const;

  /// Gathers bytes from all ranks. Collective; blocks. errc::deadline_exceeded names the ranks that did not call it,
  /// with the call that each was in or made last.
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& options);
  /// Starts an exchange. Does not block, but may copy messages of at most 64 KiB each. errc::invalid_argument for a
  /// peer that is this rank, out of range, repeated, or given an empty message (names it); nothing is started then.
  /// Each `pending::done` copies at most one message.
  result<pending> start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                 const call_options& options);
  /// Starts a lending, with the rules and errors of `start_exchange`; does not block.
  result<lending> start_lending(std::span<const lent> lends, std::span<const borrowed> borrows,
                                const call_options& options);
  /// The collectives of `collective_communicator`, implemented with messages; they do not block.
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
  /// Poisons the group with this reason. Does nothing when the group is poisoned already.
  void abort(const error& reason);
  /// Returns the rank's live numbers (see `communicator_ref::numbers`); all handles of a rank share one set.
  object_numbers numbers() const;

 private:
  friend class thread_group;
  thread_communicator(std::shared_ptr<thread_state> state, std::int32_t rank) : state_(std::move(state)), rank_(rank) {}
  std::shared_ptr<thread_state> state_;
  std::int32_t rank_ = 0;
};

/// N ranks as threads of one process. The caller (or `run_ranks`) starts the threads.
class thread_group {
 public:
  /// Makes a group of `size` ranks. Precondition: size >= 1.
  explicit thread_group(std::int32_t size);

  std::int32_t size() const;
  /// Returns a handle for one rank. Precondition: 0 <= rank < size().
  thread_communicator communicator(std::int32_t rank) const;

  /// Declares that a rank makes no further calls. A rank that waits for it, now or later, gets an error instead of
  /// waiting for ever.
  void leave(std::int32_t rank) const;
  /// Returns the error that poisoned the group, or success. The error names the rank that it came from, unless it
  /// already names ranks or is errc::gap.
  result<void> status() const;
  /// Describes what each rank is doing and its latest calls, one line per rank, for people to read.
  std::string trace() const;

 private:
  std::shared_ptr<thread_state> state_;
};

}  // namespace shardmesh
