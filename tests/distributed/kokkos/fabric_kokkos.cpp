// SPDX-License-Identifier: Apache-2.0
// The distributed suite over threads of this process, with Kokkos's kernels instead of the host's.
#include <algorithm>
#include <cstdint>
#include <fabric.hpp>
#include <string>
#include <vector>
import shardmesh.kokkos;
import shardmesh.test.thread_fabric;

using namespace shardmesh;

namespace fabric {

const std::vector<kind>& all() {
  static const std::vector<kind> kinds{
      {"threads with Kokkos", {1, 2, 3, 4, 5, 6, 7, 8}, [](std::int32_t size, const rank_body& body) {
         static const auto& kokkos = *new result<kokkos_scope>(kokkos_scope::open({.threads = 2}));
         return kokkos ? test::run_on_threads(size, body) : to_string(kokkos.error());
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
