// SPDX-License-Identifier: Apache-2.0
// The distributed suite over threads of this process, with Kokkos's kernels in place of the host's.
#include <cstdint>
#include <cstdlib>
#include <fabric.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>
import shardmesh.comm;
import shardmesh.kokkos;

using namespace shardmesh;

namespace fabric {

const std::vector<kind>& all() {
  static const std::vector<kind> kinds{
      {"threads with Kokkos", {1, 2, 3, 4, 5, 6, 7, 8}, [](std::int32_t size, const rank_body& body) -> std::string {
         static const auto& kokkos = *new result<kokkos_scope>(kokkos_scope::open({.threads = 2}));
         if (!kokkos) return to_string(kokkos.error());
         const auto done = run_ranks(size, [&](any_communicator& comm) -> result<void> {
           const std::string wrong = body(&comm);
           if (wrong.empty()) return {};
           return fail(errc::checksum_mismatch, "rank " + std::to_string(comm.rank()) + ": " + wrong);
         });
         return done ? std::string() : to_string(done.error());
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
