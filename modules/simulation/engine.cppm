// SPDX-License-Identifier: Apache-2.0
// simulation_state: the state that the ranks of a simulation share. Not exported. Only the thread of the rank that has
// the turn reads or writes it, so that it needs no lock: the rank that hands the turn over synchronises with the next.
// The schedule is in engine.cpp, and the messages and clocks are in messages.cpp.
module shardmesh.simulation:engine;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;
import :network_model;
import :simulate_ranks;
import :simulated_communicator;
import :simulation_report;

namespace shardmesh {

class simulated_exchange;

// One end of a message: a send or a receive. It is queued at the receiver until the other end comes.
struct simulated_message {
  simulated_exchange* owner = nullptr;
  simulated_message *next = nullptr, *previous = nullptr;
  std::int32_t peer = 0;
  bool is_send = false;
  bool is_queued = false;
  std::span<const std::byte> from{};  // of a send
  std::span<std::byte> to{};          // of a receive
  std::chrono::nanoseconds
      arrival{};  // when the first byte reaches the receiver; of a receive, once it has met its send
  std::size_t size_bytes() const { return is_send ? from.size() : to.size(); }
};

// The ends of one sender, receiver, and tag that wait for their other ends, in call order: all sends, or all receives.
struct message_queue {
  simulated_message *first = nullptr, *last = nullptr;
  void push_back(simulated_message& one);
  void remove(simulated_message& one);
};

// A started exchange.
class simulated_exchange final : public pending::operation {
 public:
  simulated_exchange(std::shared_ptr<simulation_state> of, const detail::call_identity& call, detail::call_limits until)
      : group(std::move(of)), identity(call), limits(std::move(until)) {}
  bool done() override;
  result<void> wait() override;

  std::shared_ptr<simulation_state> group;
  detail::call_identity identity;
  detail::call_limits limits;
  std::vector<simulated_message> ends;  // never reallocated once the first is queued
  std::size_t open = 0;                 // ends that have not met their other ends
  std::chrono::nanoseconds departed{};  // when the last byte of its sends has left
};

// One all_gather in progress: the bytes of the ranks that have arrived.
struct gather_round {
  std::vector<std::vector<std::byte>> parts;
  std::vector<bool> came;
  std::int32_t missing = 0;
  std::int64_t size_bytes = 0;        // of all parts
  std::chrono::nanoseconds latest{};  // arrival of the last rank
};

enum class rank_status : std::uint8_t { ready, waiting, ended };

// One rank. `lock` guards `has_turn` alone.
struct simulated_rank {
  std::mutex lock;
  std::condition_variable changed;
  bool has_turn = false;

  rank_status status = rank_status::ready;
  std::int32_t next_ready = -1;
  // While it waits:
  detail::call_identity call{};
  const simulated_exchange* exchange = nullptr;  // null: it waits in an all_gather
  const detail::call_limits* limits = nullptr;
  bool is_limited = false, is_stoppable = false;  // the wait has a deadline or a cancellation; it has a cancellation
  std::size_t limited_at = 0;                     // its place among the waits with limits, if it is one

  std::unordered_map<std::uint64_t, message_queue> inbox;    // by sender and tag; no queue is empty
  std::chrono::nanoseconds now{};                            // modelled time
  std::chrono::nanoseconds sends_until{}, receives_until{};  // when its links become free
  std::chrono::nanoseconds cpu_mark{};                       // CPU time of its thread when its last call returned
  rank_traffic traffic;
  object_numbers numbers;
};

class simulation_state : public std::enable_shared_from_this<simulation_state> {
 public:
  simulation_state(std::int32_t size, const simulation_options& options);
  std::int32_t size() const { return static_cast<std::int32_t>(ranks_.size()); }
  simulated_rank& of(std::int32_t rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const simulated_rank& of(std::int32_t rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  simulated_communicator communicator(std::int32_t rank);

  // The life of a rank's thread: its first turn, and its end.
  void begin_thread(std::int32_t rank);
  void end_thread(std::int32_t rank);
  void give_turn(std::int32_t rank);
  // Gives the first turn, once all threads exist.
  void start();

  result<std::vector<std::vector<std::byte>>> all_gather(std::int32_t rank, std::span<const std::byte> bytes,
                                                         const call_options& options);
  result<pending> start_exchange(std::int32_t rank, std::span<const outgoing> sends, std::span<const incoming> receives,
                                 const call_options& options);
  bool is_done(simulated_exchange& exchange);
  result<void> wait(simulated_exchange& exchange);
  void abort(std::int32_t rank, const error& reason);
  void spend(std::int32_t rank, std::chrono::nanoseconds length);

  // The poison as the result of the simulation: it names the rank that it came from.
  result<void> status() const;
  simulation_report report() &&;

 private:
  friend class own_work_pause;

  bool is_forked() const;
  bool is_thread_of(std::int32_t rank) const;
  result<detail::call_limits> begin_call(const detail::call_identity& call, const call_options& options);
  void set_poison(error reason, std::int32_t rank);
  void take_outer_abort();

  // The schedule.
  void push_ready(std::int32_t rank);
  void make_ready(std::int32_t rank);
  void wake_limited();
  std::int32_t next_turn();  // -1: all ranks have ended
  void hand_over(std::int32_t rank);
  void yield(std::int32_t rank);
  void wait_turn(const detail::call_identity& call, const detail::call_limits& limits,
                 const simulated_exchange* exchange);
  std::string waits_text(std::int32_t rank) const;
  error deadlock() const;

  // Messages and clocks.
  void depart(simulated_exchange& exchange, simulated_message& send);
  void meet(simulated_message& end);
  void deliver(simulated_message& send, simulated_message& receive);
  void detach(simulated_exchange& exchange);
  void settle(simulated_exchange& exchange);
  bool would_not_block(const simulated_exchange& exchange) const;
  std::optional<std::int32_t> returned_peer(const simulated_exchange& exchange) const;
  std::chrono::nanoseconds own_cpu_time() const;
  void note(simulation_event event);

  const simulation_options options_;
  const std::uint64_t maker_;  // token of the process that made the simulation
  std::vector<simulated_rank> ranks_;
  std::int32_t first_ready_ = -1, last_ready_ = -1;  // a list through `next_ready`
  std::int32_t ended_ = 0;
  std::vector<std::int32_t> limited_;                 // ranks that wait with a deadline or a cancellation
  std::int32_t stoppable_ = 0;                        // of them, those with a cancellation
  std::chrono::steady_clock::time_point earliest_{};  // no deadline of `limited_` is earlier
  std::optional<error> poison_;
  std::int32_t poisoned_by_ = 0;
  std::shared_ptr<gather_round> gather_;
  std::vector<simulation_event> events_;

  // An `abort` by a thread that is no rank; the next rank that hands over its turn takes it.
  std::mutex outer_lock_;
  std::optional<error> outer_abort_;
  std::atomic<bool> has_outer_abort_{false};
};

// Adds the CPU time of a rank's own work to its clock, and leaves out that of the simulation until it is destroyed.
class own_work_pause {
 public:
  own_work_pause(simulation_state& state, std::int32_t rank);
  own_work_pause(const own_work_pause&) = delete;
  own_work_pause& operator=(const own_work_pause&) = delete;
  ~own_work_pause();

 private:
  simulation_state& state_;
  std::int32_t rank_;
};

// Adds a length of time to a modelled time; the sum ends at the last time that can be represented.
inline std::chrono::nanoseconds later(std::chrono::nanoseconds time, std::chrono::nanoseconds length) {
  return std::chrono::nanoseconds(
      checked_add(time.count(), length.count()).value_or(std::numeric_limits<std::int64_t>::max()));
}

}  // namespace shardmesh
