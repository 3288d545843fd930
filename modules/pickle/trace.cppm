// SPDX-License-Identifier: Apache-2.0
// Not exported: the pickle machine's run over any bytes, kept for what it met on the way.
module;
#include <unordered_set>
module shardmesh.pickle:trace;

import shardmesh.std;
import shardmesh.core;
import :value;

namespace shardmesh::pickle {

/// What a run met, in order: the first of each global, calls whose callable is no global or is getattr, calls of what
/// loads a pickle inside of the pickle, persistent ids, extensions, and values that were changed though they are no
/// objects.
struct event {
  enum class what : std::uint8_t { global, call, load, persistent, extension, changed } kind;
  pickle::value value;
};

/// Collects events: decides which globals and calls are worth one.
class event_log {
 public:
  void note(event::what kind, const pickle::value& value) { events_.push_back({kind, value}); }
  /// The first of each name; names alone decide what is reported.
  void note_global(const pickle::value& global);
  /// Calls of what is no global, of getattr, and with getattr among the arguments; ten thousand of them.
  void note_call(const pickle::value& callable, const pickle::value& args, const pickle::value& call);
  std::vector<event> take() && { return std::move(events_); }
  /// There were more calls than are listed.
  bool is_cut() const { return calls_ > most_calls; }

 private:
  static constexpr std::size_t most_calls = 10'000;
  std::vector<event> events_;
  std::unordered_set<std::string> noted_;
  std::unordered_set<std::uint64_t> getters_;  // by identity
  std::array<std::uint64_t, 64> plain_{};      // callables that were found to be of no interest, by identity
  std::size_t calls_ = 0;
};

struct trace {
  std::unique_ptr<pickle::arena> arena;  // owns the values
  std::vector<event> events;
  bool is_cut = false;           // calls are missing from them
  std::optional<error> problem;  // where the run ended, when not at STOP
  std::size_t ended_at = 0;
};

/// Runs like Python's unpickler, which forgives what `pickle::graph::parse` does not. Never fails.
trace trace_of(std::span<const std::byte> bytes);

/// Runs as `pickle::graph::parse`, whose errors these are. Of a pickle that has none the events are those of
/// `trace_of`, and containers have their items.
result<trace> strict_trace_of(std::vector<std::byte> bytes);

}  // namespace shardmesh::pickle
