// SPDX-License-Identifier: Apache-2.0
// Parses pickles in bytes, or follows them as far as possible.
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>
module shardmesh.pickle;

import :machine;
import :trace;

namespace shardmesh::pickle {

trace trace_of(std::span<const std::byte> bytes) {
  trace made;
  made.arena = std::make_unique<pickle::arena>();
  made.arena->input = bytes;
  event_log log;
  machine runs(*made.arena, &log, true);
  if (auto done = runs.run(); !done) made.problem = std::move(done).error();
  made.is_cut = log.is_cut();
  made.events = std::move(log).take();
  made.ended_at = made.problem ? runs.position() : made.arena->consumed;
  return made;
}

result<trace> strict_trace_of(std::vector<std::byte> bytes) {
  trace made;
  made.arena = std::make_unique<pickle::arena>();
  made.arena->owned = std::move(bytes);
  made.arena->input = made.arena->owned;
  event_log log;
  SHARDMESH_TRY(machine(*made.arena, &log).run());
  made.is_cut = log.is_cut();
  made.events = std::move(log).take();
  made.ended_at = made.arena->consumed;
  return made;
}

result<graph> graph::run(std::unique_ptr<pickle::arena> arena) {
  SHARDMESH_TRY(machine(*arena).run());
  return graph(std::move(arena));
}

result<graph> graph::parse(std::span<const std::byte> bytes) {
  auto made = std::make_unique<pickle::arena>();
  made->input = bytes;
  return run(std::move(made));
}

result<graph> graph::parse(std::vector<std::byte> bytes) {
  auto made = std::make_unique<pickle::arena>();
  made->owned = std::move(bytes);
  made->input = made->owned;
  return run(std::move(made));
}

}  // namespace shardmesh::pickle
