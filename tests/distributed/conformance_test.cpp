// SPDX-License-Identifier: Apache-2.0
// The installed suite for communicators, over every transport of ours and every number of ranks.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <fabric.hpp>
#include <string>
#include <vector>
import shardmesh.conformance;

using namespace shardmesh;

TEST_CASE("our communicators conform") {
  for (const fabric::kind& kind : fabric::all())
    for (const std::int32_t size : kind.sizes)
      for (const conformance_check& check : conformance_checks()) {
        // A group of its own for each. What the check makes fail on purpose must not end the run: ranks say what is
        // wrong, and the run's own outcome says whether they all came to an end.
        INFO(kind.name << ", " << size << " ranks: " << check.name);
        std::string wrong = kind.run(size, [&](void* comm) -> std::string {
          std::string text;
          for (const conformance_problem& p : run_check(check, *static_cast<any_communicator*>(comm)))
            text += to_string(p) + "\n";
          return text;
        });
        CHECK(wrong == "");
      }
}
