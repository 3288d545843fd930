// SPDX-License-Identifier: Apache-2.0
// Measurements for benchmarks of ranks: the slowest rank's time, and resident memory. It imports a module, so include
// it last.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

import shardmesh;

namespace rank_timing {

using namespace shardmesh;
using clock_type = std::chrono::steady_clock;

// Resident bytes of this process: now ("VmRSS:"), or the most since `forget_peak` ("VmHWM:").
inline std::int64_t resident(std::string_view which) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(which)) return 1024 * std::atoll(line.c_str() + which.size());
  return 0;
}

inline void forget_peak() {
  std::ofstream("/proc/self/clear_refs") << 5;
}

inline void meet(any_communicator& comm) {
  comm.all_gather({}, {}).value();
}

// Returns the slowest rank's value.
inline double slowest(any_communicator& comm, double own) {
  const auto all = comm.all_gather(std::as_bytes(std::span(&own, 1)), {}).value();
  for (const auto& bytes : all) {
    double other = 0;
    std::memcpy(&other, bytes.data(), sizeof other);
    own = std::max(own, other);
  }
  return own;
}

template <class Act>
double timed(any_communicator& comm, const Act& act) {
  meet(comm);
  const auto begin = clock_type::now();
  act();
  return slowest(comm, std::chrono::duration<double>(clock_type::now() - begin).count());
}

}  // namespace rank_timing
