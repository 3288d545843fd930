// SPDX-License-Identifier: Apache-2.0
// The communicators that the distributed suite runs over. The suite is written once; each program that runs it defines
// `all` and `seed`: threads in tests/distributed, other transports in folders of their own. It uses no shardmesh type,
// so that it can be included before any import: a communicator is a `void*`.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fabric {

/// The work of one rank: `comm` points to its `shardmesh::any_communicator`. Returns a problem, or an empty string.
using rank_body = std::function<std::string(void* comm)>;

struct kind {
  std::string name;
  std::vector<std::int32_t> sizes;  // possible numbers of ranks
  /// Runs the body on every rank and returns the problem of the first failing rank. A transport whose ranks are
  /// processes runs it on its own rank only.
  std::function<std::string(std::int32_t size, const rank_body& body)> run;
  /// Messages are in memory of real or simulated devices; tests then use no fake devices.
  bool is_on_devices = false;
};

const std::vector<kind>& all();

/// The seed of this program run, equal on all ranks. SHARDMESH_SEED sets it.
std::uint64_t seed();

/// Rounds of a random test: `normal`, or many with SHARDMESH_PROPERTY_RUNS=long.
int rounds(int normal);

}  // namespace fabric
