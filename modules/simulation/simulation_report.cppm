// SPDX-License-Identifier: Apache-2.0
// simulation_report: what simulated ranks sent and received, and the modelled time. simulate_ranks makes it.
export module shardmesh.simulation:simulation_report;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// The calls and messages of one simulated rank. Messages are those of exchanges and of the data collectives, which are
/// made of exchanges. An all_gather is counted apart, because transports implement it in different ways.
struct rank_traffic {
  std::int64_t sent_messages = 0, sent_bytes = 0;          // counted when the exchange starts
  std::int64_t received_messages = 0, received_bytes = 0;  // counted when they arrive
  std::int64_t exchanges = 0;                              // started, with at least one message
  std::int64_t all_gathers = 0;
  std::int64_t gathered_bytes = 0;      // bytes of the other ranks, in all all_gathers together
  std::int64_t largest_gather = 0;      // the most bytes of this rank in one all_gather
  std::chrono::nanoseconds finished{};  // the modelled time at which the rank's function returned
  friend bool operator==(const rank_traffic&, const rank_traffic&) = default;
};

/// One event of a trace, at a modelled time.
struct simulation_event {
  enum class what : std::uint8_t { sent, received, gathered };
  what kind = what::sent;
  std::int32_t rank = 0;  // the rank at which it happened
  std::int32_t peer = 0;  // of a message; in an all_gather, the rank itself
  std::uint32_t tag = 0;
  std::int64_t size_bytes = 0;    // of the message; in an all_gather, of this rank's part
  std::chrono::nanoseconds at{};  // the message begins to leave; it has arrived; the rank leaves the all_gather
  friend bool operator==(const simulation_event&, const simulation_event&) = default;
};

/// The result of a simulation. Equal programs have equal reports, unless the CPU time of ranks is counted.
struct simulation_report {
  std::vector<rank_traffic> ranks;       // in rank order
  std::vector<simulation_event> events;  // in the order of the schedule; empty unless `simulation_options::trace`

  /// Returns the modelled time until the last rank finished.
  std::chrono::nanoseconds critical_path() const;
  friend bool operator==(const simulation_report&, const simulation_report&) = default;
};

/// Formats one event: "12500 ns: rank 3 received 40 bytes from rank 0 (tag 7)".
std::string to_string(const simulation_event& event);

}  // namespace shardmesh
