// SPDX-License-Identifier: Apache-2.0
// The distributed suite over threads of this process, whose memory a backend works on by tables.
#include <cstdint>
#include <cstdlib>
#include <fabric.hpp>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>
import shardmesh.comm;
import shardmesh.kernels;
import shardmesh.test.fake_device;

using namespace shardmesh;

namespace fabric {

const std::vector<kind>& all() {
  static const std::vector<kind> kinds{
      {"threads with batches", {1, 2, 3, 4, 5, 6, 7, 8}, [](std::int32_t size, const rank_body& body) -> std::string {
         const backend_scope tables(std::make_shared<test::fake_backend>(device_type::cpu));
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
