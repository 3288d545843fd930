// SPDX-License-Identifier: Apache-2.0
// Runs a rank's body over every communicator of the fabric. It uses no shardmesh type: a test names its communicator
// type once:
//   constexpr auto& on_ranks = fabric::on_ranks<any_communicator>;
// Include before imports.
#pragma once
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdint>
#include <fabric.hpp>
#include <functional>
#include <string>
#include <vector>
#include <watchdog.hpp>

namespace fabric {

/// Runs the body with each of `sizes` that a fabric supports. The body returns a problem of its rank. Any problem, and
/// exceeding the time limit, fails the test.
template <class Communicator, int Seconds = 120>
void on_ranks(const std::vector<std::int32_t>& sizes, const std::function<std::string(Communicator&)>& body) {
  const watchdog dog{std::chrono::seconds(Seconds)};
  for (const kind& one : all())
    for (const std::int32_t size : sizes) {
      if (std::find(one.sizes.begin(), one.sizes.end(), size) == one.sizes.end()) continue;
      INFO(one.name << " with " << size << " ranks");
      CHECK(one.run(size, [&](void* comm) { return body(*static_cast<Communicator*>(comm)); }) == "");
    }
}

/// Like on_ranks, with every number of ranks that a fabric supports.
template <class Communicator, int Seconds = 120>
void on_all_sizes(const std::function<std::string(Communicator&)>& body) {
  const watchdog dog{std::chrono::seconds(Seconds)};
  for (const kind& one : all())
    for (const std::int32_t size : one.sizes) {
      INFO(one.name << " with " << size << " ranks");
      CHECK(one.run(size, [&](void* comm) { return body(*static_cast<Communicator*>(comm)); }) == "");
    }
}

}  // namespace fabric
