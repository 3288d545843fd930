// SPDX-License-Identifier: Apache-2.0
// simulated_communicator: one rank of a simulation. simulate_ranks makes the ranks and runs them.
export module shardmesh.simulation:simulated_communicator;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;

namespace shardmesh {
class simulation_state;
}

export namespace shardmesh {

/// One rank's handle to a simulation. Models `collective_communicator`. Its ranks do not share memory
/// (`start_lending`), so that every byte is a message and is counted, as between processes.
/// One rank runs at a time. It runs until it waits for a message that has not been sent, or polls: `pending::done` of
/// unfinished work and an exchange without messages let the other ranks run first. If every rank waits, all waits fail
/// at once with an error that lists which rank waits for which.
/// Deadlines (`within`) and cancellations count in real time, and are noticed when a rank waits or polls. The events
/// that poison a `thread_communicator` poison a simulation. Only the rank's own thread may use its communicator and its
/// pending work: any other thread gets errc::unsupported, as does a call with a stream. In a forked child every call
/// returns errc::invalid_argument, except `abort`, which does nothing.
class simulated_communicator {
 public:
  std::int32_t rank() const { return rank_; }
  std::int32_t size() const;

  /// Gathers bytes from all ranks. Collective; blocks.
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& options);
  /// Starts an exchange. A message is one copy, which the second of its two ranks makes when it starts its exchange.
  result<pending> start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                 const call_options& options);
  /// The collectives of `collective_communicator`, implemented with messages.
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
  /// Poisons the simulation with this reason. Does nothing when it is poisoned already. Any thread may call it.
  void abort(const error& reason);
  /// Returns the rank's live numbers (see `communicator_ref::numbers`).
  object_numbers numbers() const;

  /// Returns the rank's modelled time, which begins at 0.
  std::chrono::nanoseconds now() const;
  /// Adds the time of work that is not done here to the rank's modelled time. Precondition: `length` is not negative.
  void spend(std::chrono::nanoseconds length);

 private:
  friend class simulation_state;
  simulated_communicator(std::shared_ptr<simulation_state> state, std::int32_t rank)
      : state_(std::move(state)), rank_(rank) {}
  std::shared_ptr<simulation_state> state_;
  std::int32_t rank_ = 0;
};

}  // namespace shardmesh
