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
        // Each check has a new group. A check's deliberate failure must not end the run: ranks return problems as text,
        // and the run's own result tells whether all ranks finished.
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
