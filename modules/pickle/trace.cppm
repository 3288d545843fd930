// SPDX-License-Identifier: Apache-2.0
// Not exported: the pickle machine's run over any bytes, kept for what it met on the way.
module shardmesh.pickle:trace;

import shardmesh.std;
import shardmesh.core;
import :value;

namespace shardmesh {

/// What a run met, in order: the first of each global, calls whose callable is no global or is getattr, persistent
/// ids, extensions, and values that were changed though they are no objects.
struct pickle_event {
  enum class what : std::uint8_t { global, call, persistent, extension, changed } kind;
  pickle_value value;
};

struct pickle_trace {
  std::unique_ptr<pickle_arena> arena;  // owns the values
  std::vector<pickle_event> events;
  std::optional<error> problem;  // where the run ended, when not at STOP
  std::size_t ended_at = 0;
};

/// Runs like Python's unpickler, which forgives what `pickle_graph::parse` does not. Never fails.
pickle_trace trace_pickle(std::span<const std::byte> bytes);

}  // namespace shardmesh
