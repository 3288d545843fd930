// SPDX-License-Identifier: Apache-2.0
// Runs what a rank does over every communicator of the fabric. Knows no shardmesh type: a test says which communicator
// it means, once:
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

/// The body says what is wrong on its rank; nothing may be, on any number of ranks of these that a fabric has, all
/// within the limit.
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

/// As on_ranks, on every number of ranks that a fabric has.
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
