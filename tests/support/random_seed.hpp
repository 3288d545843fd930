// SPDX-License-Identifier: Apache-2.0
// How often property tests run, and with which seeds. Include before imports.
#pragma once
#include <cstdint>
#include <cstdlib>
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

}  // namespace random_seed
