// SPDX-License-Identifier: Apache-2.0
// The distributed suite over NCCL on the double: threads with a device each, memory of the host staged through that of
// the device. Messages have no tags there: what needs them is not run (CMakeLists.txt of tests).
#include <gpu_double/gpu_double.h>
#include <cstdint>
#include <cstdlib>
#include <fabric.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>
import shardmesh.test.gpu_ranks;

using namespace shardmesh;

namespace fabric {

const std::vector<kind>& all() {
  static const std::vector<kind> kinds{
      {"NCCL", {1, 2, 4, 8}, [](std::int32_t size, const rank_body& body) -> std::string {
         double_reset(seed());
         std::string wrong =
             test::on_gpus(SHARDMESH_GPU_DOUBLE, size, [&](nccl_communicator& comm, any_communicator&) -> std::string {
               any_communicator staged{test::staged_communicator(comm)};
               return body(&staged);
             });
         if (wrong.empty()) wrong = double_problem_text();
         return wrong;
       }}};
  return kinds;
}

std::uint64_t seed() {
  static const std::uint64_t value = [] {
    if (const char* const text = std::getenv("SHARDMESH_SEED")) return std::strtoull(text, nullptr, 10);
    return static_cast<unsigned long long>(std::random_device{}());
  }();
  return value;
}

int rounds(int normal) {
  return std::getenv("SHARDMESH_PROPERTY_RUNS") != nullptr ? normal * 20 : normal;
}

}  // namespace fabric
