// SPDX-License-Identifier: Apache-2.0
// The distributed suite over threads of this process, with a backend that runs batches on their memory.
#include <algorithm>
#include <cstdint>
#include <fabric.hpp>
#include <memory>
#include <string>
#include <vector>
import shardmesh.kernels;
import shardmesh.test.fake_device;
import shardmesh.test.thread_fabric;

using namespace shardmesh;

namespace fabric {

const std::vector<kind>& all() {
  static const std::vector<kind> kinds{
      {"threads with batches", {1, 2, 3, 4, 5, 6, 7, 8}, [](std::int32_t size, const rank_body& body) {
         const backend_scope tables(std::make_shared<test::fake_backend>(device_type::cpu));
         return test::run_on_threads(size, body);
       }}};
  return kinds;
}

std::uint64_t seed() {
  return test::seed_of_run();
}

int rounds(int normal) {
  // Threads with the host's kernels run the normal number.
  return test::runs_are_long() ? normal * 4 : std::max(1, normal / 2);
}

}  // namespace fabric
