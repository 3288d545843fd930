// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>
module shardmesh.simulation;

namespace shardmesh {

std::chrono::nanoseconds simulation_report::critical_path() const {
  std::chrono::nanoseconds last{};
  for (const rank_traffic& one : ranks) last = std::max(last, one.finished);
  return last;
}

std::string to_string(const simulation_event& event) {
  const std::string head = fmt::format("{} ns: rank {}", event.at.count(), event.rank);
  const std::string size = detail::counted(event.size_bytes, "byte");
  switch (event.kind) {
    case simulation_event::what::sent:
      return fmt::format("{} sent {} to rank {} (tag {})", head, size, event.peer, event.tag);
    case simulation_event::what::received:
      return fmt::format("{} received {} from rank {} (tag {})", head, size, event.peer, event.tag);
    case simulation_event::what::gathered:
      return fmt::format("{} left an all_gather of its {} (tag {})", head, size, event.tag);
  }
  return head;
}

}  // namespace shardmesh
