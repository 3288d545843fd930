// SPDX-License-Identifier: Apache-2.0
// Not exported: runs the pickle machine over any bytes and keeps the events of the run.
module;
#include <unordered_set>
module shardmesh.pickle:trace;

import shardmesh.std;
import shardmesh.core;
import :value;

namespace shardmesh::pickle {

/// One event of a run, in order of occurrence. Events are the first use of each global, unusual calls, loads of nested
/// pickles, persistent ids, extensions, and changes of values that are not objects. A call is unusual when its callable
/// is not a global, or when getattr is involved.
struct event {
  enum class what : std::uint8_t { global, call, load, persistent, extension, changed } kind;
  pickle::value value;
};

/// Collects events, and decides which globals and calls deserve one.
class event_log {
 public:
  void note(event::what kind, const pickle::value& value) { events_.push_back({kind, value}); }
  /// Notes the first global of each name: the report depends on names alone.
  void note_global(const pickle::value& global);
  /// Notes unusual calls and loads of nested pickles, at most ten thousand. See `event` for unusual calls.
  void note_call(const pickle::value& callable, const pickle::value& args, const pickle::value& call);
  std::vector<event> take() && { return std::move(events_); }
  /// Returns true when there were more calls than the log holds.
  bool is_cut() const { return calls_ > most_calls; }

 private:
  static constexpr std::size_t most_calls = 10'000;
  std::vector<event> events_;
  std::unordered_set<std::string> noted_;
  std::unordered_set<std::uint64_t> getters_;  // by identity
  std::array<std::uint64_t, 64> plain_{};      // a cache of callables that need no event, by identity
  std::size_t calls_ = 0;
};

struct trace {
  std::unique_ptr<pickle::arena> arena;  // owns the values
  std::vector<event> events;
  bool is_cut = false;           // some calls are missing from `events`
  std::optional<error> problem;  // set when the run ended before STOP
  std::size_t ended_at = 0;
};

/// Runs the machine with the tolerance of Python's unpickler, which accepts more than `pickle::graph::parse`. Never
/// fails.
trace trace_of(std::span<const std::byte> bytes);

/// Runs the machine as `pickle::graph::parse` does, with the same errors. On success the events equal those of
/// `trace_of`, and containers have their items.
result<trace> strict_trace_of(std::vector<std::byte> bytes);

}  // namespace shardmesh::pickle
