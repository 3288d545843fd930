// SPDX-License-Identifier: Apache-2.0
// The installed suite for communicators, over simulated ranks.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>
#include <watchdog.hpp>
import shardmesh.conformance;
import shardmesh.simulation;

using namespace shardmesh;
using namespace std::chrono_literals;

TEST_CASE("simulated ranks conform to the rules of communicators") {
  const watchdog dog(300s);
  for (const std::int32_t size : {1, 2, 3, 8})
    for (const conformance_check& check : conformance_checks()) {
      INFO(size << " ranks: " << check.name);
      // Each check has a new group, and its deliberate failure does not end the simulation.
      std::vector<std::string> wrong;
      const auto done = simulate_ranks(size, [&](any_communicator& comm) -> result<void> {
        for (const conformance_problem& p : run_check(check, comm)) wrong.push_back(to_string(p));
        return {};
      });
      CHECK(done.has_value());
      CHECK(wrong == std::vector<std::string>{});
    }
}
