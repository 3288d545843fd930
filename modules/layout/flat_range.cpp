// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>
module shardmesh.layout;

import :flat_range;
import :split_rule;

namespace shardmesh {

std::optional<extents> memory_order(const extents& sizes, const extents& strides) {
  if (sizes.rank() != strides.rank()) return std::nullopt;
  extents order;
  for (std::size_t d = 0; d < sizes.rank(); ++d) order.push_back(static_cast<std::int64_t>(d));
  if (box::whole(sizes).is_empty()) return order;
  // Only dimensions with several indices are sorted; those of size 1 stay in place.
  std::vector<std::size_t> moving;
  for (std::size_t d = 0; d < sizes.rank(); ++d)
    if (sizes[d] != 1) moving.push_back(d);
  const std::vector<std::size_t> places = moving;
  std::sort(moving.begin(), moving.end(),
            [&](std::size_t a, std::size_t b) { return std::tuple(strides[b], a) < std::tuple(strides[a], b); });
  for (std::size_t i = 0; i < places.size(); ++i) order[places[i]] = static_cast<std::int64_t>(moving[i]);
  std::int64_t expected = 1;
  for (std::size_t i = order.rank(); i-- > 0;) {
    const auto d = static_cast<std::size_t>(order[i]);
    if (sizes[d] == 1) continue;
    if (strides[d] != expected) return std::nullopt;
    expected *= sizes[d];
  }
  return order;
}

std::vector<flat_box> boxes_of_range(const extents& sizes, const extents& order, index_range range) {
  const std::size_t rank = sizes.rank();
  std::vector<flat_box> boxes;
  if (range.size == 0) return boxes;
  if (rank == 0) return {{box::whole(sizes), 0}};
  // The number of elements per step of each dimension, slowest first.
  extents permuted, step = extents::filled(rank, 1);
  for (const std::int64_t d : order) permuted.push_back(sizes[static_cast<std::size_t>(d)]);
  for (std::size_t i = rank - 1; i-- > 0;) step[i] = step[i + 1] * permuted[i + 1];

  const std::int64_t end = range.begin + range.size;
  for (std::int64_t at = range.begin; at < end;) {
    // The slowest dimension in which whole steps begin here and fit.
    std::size_t level = 0;
    while (at % step[level] != 0 || step[level] > end - at) ++level;
    const std::int64_t index = at / step[level] % permuted[level];
    const std::int64_t count = std::min(permuted[level] - index, (end - at) / step[level]);
    flat_box found{box::whole(sizes), at};
    for (std::size_t i = 0; i <= level; ++i) {
      const auto d = static_cast<std::size_t>(order[i]);
      found.where.offsets[d] = at / step[i] % permuted[i];
      found.where.sizes[d] = i == level ? count : 1;
    }
    boxes.push_back(found);
    at += count * step[level];
  }
  return boxes;
}

std::vector<flat_box> boxes_of_range(const extents& sizes, index_range range) {
  extents order;
  for (std::size_t d = 0; d < sizes.rank(); ++d) order.push_back(static_cast<std::int64_t>(d));
  return boxes_of_range(sizes, order, range);
}

}  // namespace shardmesh
