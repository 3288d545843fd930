// SPDX-License-Identifier: Apache-2.0
// How often property tests run, and with which seeds. Include before imports.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string_view>

namespace random_seed {

/// Whether property tests are to take long: SHARDMESH_PROPERTY_RUNS=long.
inline bool runs_are_long() {
  const char* text = std::getenv("SHARDMESH_PROPERTY_RUNS");
  return text != nullptr && std::string_view(text) == "long";
}

/// `count` rounds; twenty times as many where they are to take long.
inline std::uint64_t rounds(std::uint64_t count) {
  return runs_are_long() ? 20 * count : count;
}

/// The seed of random tests: SHARDMESH_SEED, or one of this program's run. A test that draws by it says, where it
/// fails, how it is run again: INFO("SHARDMESH_SEED=" << seed). Tests that go through fixed seeds need none of it.
inline std::uint64_t seed() {
  static const std::uint64_t value = [] {
    const char* const text = std::getenv("SHARDMESH_SEED");
    return text != nullptr && *text != '\0' ? std::strtoull(text, nullptr, 10)
                                            : static_cast<unsigned long long>(std::random_device{}());
  }();
  return value;
}

}  // namespace random_seed
