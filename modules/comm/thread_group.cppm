// SPDX-License-Identifier: Apache-2.0
// thread_group: ranks that are threads of one process. The embedded default, and the simulator for tests of distributed
// code. Not here: starting the threads (run_ranks), processes (optional rooms).
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

/// One rank's handle of a thread_group; keeps the group alive. Models `collective_communicator` and
/// `memory_sharing_communicator`.
/// A message is one copy from the sender's buffer into the receiver's, made by whichever of the two waits first when
/// both are there. Messages of different sizes on the two sides, a deadline that passes, a cancelled call, `abort`
/// and a rank that is done while others wait for it poison the group: every rank gets that same error from then on.
/// A stream is errc::unsupported: the memory of threads is the host's; nothing is started then. Every member may be
/// called from any thread. In a forked child every call of a copy is errc::invalid_argument; `abort` does nothing.
class thread_communicator {
 public:
  std::int32_t rank() const { return rank_; }
  std::int32_t size() const;

  /// Collective; blocks. errc::deadline_exceeded names the ranks that did not come, and what they were doing.
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& options);
  /// Does not block, except for copies of at most 64 KiB each. errc::invalid_argument names the peer: this rank itself,
  /// out of range, named twice or with an empty message; nothing is started then. `pending::done` copies one message.
  result<pending> start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                 const call_options& options);
  /// As `start_exchange`; does not block.
  result<lending> start_lending(std::span<const lent> lends, std::span<const borrowed> borrows,
                                const call_options& options);
  /// As `collective_communicator`, made of messages; do not block.
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
  /// Poisons the group with this reason, unless it is poisoned already.
  void abort(const error& reason);
  /// As of `communicator_ref`; one set for all handles of a rank.
  object_numbers numbers() const;

 private:
  friend class thread_group;
  thread_communicator(std::shared_ptr<thread_state> state, std::int32_t rank) : state_(std::move(state)), rank_(rank) {}
  std::shared_ptr<thread_state> state_;
  std::int32_t rank_ = 0;
};

/// N ranks as threads of one process. The threads are the caller's (or `run_ranks`'s).
class thread_group {
 public:
  /// Precondition: size >= 1.
  explicit thread_group(std::int32_t size);

  std::int32_t size() const;
  /// Precondition: 0 <= rank < size().
  thread_communicator communicator(std::int32_t rank) const;

  /// Says that a rank will make no further call: a rank that waits for it, now or later, gets an error instead of
  /// waiting for ever.
  void leave(std::int32_t rank) const;
  /// The error that poisoned the group, with the rank it came from (but a gap); nothing while it is sound.
  result<void> status() const;
  /// What each rank is doing and its latest calls, one line per rank: for people.
  std::string trace() const;

 private:
  std::shared_ptr<thread_state> state_;
};

}  // namespace shardmesh
