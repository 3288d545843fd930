// SPDX-License-Identifier: Apache-2.0
// The number of rounds and the seeds of property tests. Include before imports.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

namespace random_seed {

/// Whether property tests run long: SHARDMESH_PROPERTY_RUNS=long.
inline bool runs_are_long() {
  const char* text = std::getenv("SHARDMESH_PROPERTY_RUNS");
  return text != nullptr && std::string_view(text) == "long";
}

/// `count` rounds, or `factor` times as many in long runs: fewer than twenty where a round takes seconds.
inline std::uint64_t rounds(std::uint64_t count, std::uint64_t factor = 20) {
  return runs_are_long() ? factor * count : count;
}

/// The seed of random tests: SHARDMESH_SEED, or a random one for this program run. A test that uses it must print how
/// to repeat a failure: INFO("SHARDMESH_SEED=" << seed). Tests with fixed seeds do not need it.
inline std::uint64_t seed() {
  static const std::uint64_t value = [] {
    const char* const text = std::getenv("SHARDMESH_SEED");
    return text != nullptr && *text != '\0' ? std::strtoull(text, nullptr, 10)
                                            : static_cast<unsigned long long>(std::random_device{}());
  }();
  return value;
}

/// `count` seeds in a row from `seed()` on, or `factor` times as many in long runs. A test that uses them prints the one
/// that failed: SHARDMESH_SEED=<seed> begins with it.
inline std::vector<std::uint64_t> seeds(std::uint64_t count, std::uint64_t factor = 20) {
  std::vector<std::uint64_t> made(rounds(count, factor));
  std::iota(made.begin(), made.end(), seed());
  return made;
}

}  // namespace random_seed
