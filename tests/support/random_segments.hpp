// SPDX-License-Identifier: Apache-2.0
// Random segments of a dimension, for placements that cut each of them. Include before imports.
#pragma once
#include <dice.hpp>

#include <cstdint>
#include <vector>

/// The sizes of 1 to 4 segments that add up to `length`; some may be 0.
inline std::vector<std::int64_t> random_segments(dice& roll, std::int64_t length) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t more = roll.up_to(3); more > 0; --more) {
    sizes.push_back(roll.below(length));
    length -= sizes.back();
  }
  sizes.push_back(length);
  return sizes;
}
