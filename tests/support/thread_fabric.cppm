// SPDX-License-Identifier: Apache-2.0
// shardmesh.test.thread_fabric: shared by fabrics with thread ranks (fabric.hpp): runs a body on all of them, and
// provides the seed. Tests only.
module;
#include <cstdint>
#include <cstdlib>
#include <fabric.hpp>
#include <random>
#include <random_seed.hpp>
#include <string>

export module shardmesh.test.thread_fabric;

import shardmesh.comm;

export namespace shardmesh::test {

/// Implements `fabric::kind::run`.
[[nodiscard]] std::string run_on_threads(std::int32_t size, const fabric::rank_body& body) {
  const auto done = run_ranks(size, [&](any_communicator& comm) -> result<void> {
    const std::string wrong = body(&comm);
    if (wrong.empty()) return {};
    return fail(errc::checksum_mismatch, "rank " + std::to_string(comm.rank()) + ": " + wrong);
  });
  return done ? std::string() : to_string(done.error());
}

/// SHARDMESH_SEED, or a random seed of this run.
std::uint64_t seed_of_run() {
  return random_seed::seed();
}

/// Whether random tests run long.
bool runs_are_long() {
  return random_seed::runs_are_long();
}

}  // namespace shardmesh::test
