// SPDX-License-Identifier: Apache-2.0
// The proof of coverage: the random measures of boxes that hold every cell once add up to the measure of the whole
// (cover_measure.hpp).
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "cover_measure.hpp"
module shardmesh.layout;

import :box_arrays;

namespace shardmesh {

bool is_partition(const extents& shape, std::size_t count, function_ref<box_numbers(std::size_t)> box_at) {
  covering::tally sum(shape.rank());
  for (std::size_t i = 0; i < count; ++i) {
    const box_numbers b = box_at(i);
    if (!is_within(shape, b.offsets, b.sizes)) return false;
    if (!is_empty(shape.rank(), b.sizes)) sum.add(b.offsets, b.sizes);
  }
  const box whole = box::whole(shape);
  return whole.is_empty() || sum.equals(whole.offsets.data(), whole.sizes.data());
}

bool tiles_a_box(std::size_t rank, std::size_t count, function_ref<box_numbers(std::size_t)> box_at) {
  covering::tally sum(rank);
  extents low = extents::filled(rank, std::numeric_limits<std::int64_t>::max()), high = extents::filled(rank, 0);
  bool is_any = false;
  for (std::size_t i = 0; i < count; ++i) {
    const box_numbers b = box_at(i);
    if (!has_an_end(rank, b.offsets, b.sizes)) return false;
    if (is_empty(rank, b.sizes)) continue;
    is_any = true;
    sum.add(b.offsets, b.sizes);
    for (std::size_t d = 0; d < rank; ++d) {
      low[d] = std::min(low[d], b.offsets[d]);
      high[d] = std::max(high[d], b.offsets[d] + b.sizes[d]);
    }
  }
  for (std::size_t d = 0; d < rank; ++d) high[d] -= is_any ? low[d] : 0;
  return !is_any || sum.equals(low.data(), high.data());
}

}  // namespace shardmesh
