// SPDX-License-Identifier: Apache-2.0
// The distributed suite over threads of this process.
#include <cstdint>
#include <fabric.hpp>
#include <string>
#include <vector>
import shardmesh.test.thread_fabric;

using namespace shardmesh;

namespace fabric {

const std::vector<kind>& all() {
  static const std::vector<kind> kinds{{"threads", {1, 2, 3, 4, 5, 6, 7, 8}, test::run_on_threads}};
  return kinds;
}

std::uint64_t seed() {
  return test::seed_of_run();
}

int rounds(int normal) {
  return test::runs_are_long() ? normal * 20 : normal;
}

}  // namespace fabric
