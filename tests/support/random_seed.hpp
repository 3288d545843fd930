// SPDX-License-Identifier: Apache-2.0
// How often property tests run, and with which seeds. Include before imports.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace random_seed {

/// `count` rounds; twenty times as many with SHARDMESH_PROPERTY_RUNS=long.
inline std::uint64_t rounds(std::uint64_t count) {
  const char* text = std::getenv("SHARDMESH_PROPERTY_RUNS");
  return text && std::string_view(text) == "long" ? 20 * count : count;
}

}  // namespace random_seed
