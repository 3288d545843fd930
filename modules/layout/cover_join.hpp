// SPDX-License-Identifier: Apache-2.0
// Joins boxes that touch face to face, so that a missing row is reported as one box. Private to this room.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace shardmesh::covering {

namespace detail {

// Orders boxes by all their numbers except those of dimension `last`, then by their begin along `last`.
inline bool is_before(const std::int64_t* a, const std::int64_t* b, std::size_t dims, std::size_t last) {
  for (std::size_t n = 0; n < 2 * dims; ++n)
    if (n / 2 != last && a[n] != b[n]) return a[n] < b[n];
  return a[2 * last] < b[2 * last];
}

inline bool is_equal_across(const std::int64_t* a, const std::int64_t* b, std::size_t dims, std::size_t along) {
  for (std::size_t n = 0; n < 2 * dims; ++n)
    if (n / 2 != along && a[n] != b[n]) return false;
  return true;
}

}  // namespace detail

/// Joins disjoint `boxes`, which have begin and end per dimension, until nothing more joins. The work is bounded: for
/// very many boxes, some stay cut, but exactly one box still holds each cell. Cost: O(n log n) per round.
inline void join_touching(std::vector<std::int64_t>& boxes, std::size_t dims) {
  const std::size_t width = 2 * dims;
  std::int64_t work = 4'000'000;
  std::vector<std::uint32_t> order;
  std::vector<std::int64_t> joined;
  for (std::size_t d = 0, unchanged = 0; unchanged < dims && work > 0; d = (d + 1) % dims) {
    const std::size_t count = boxes.size() / width;
    work -= static_cast<std::int64_t>(count) + 1;
    order.resize(count);
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return detail::is_before(&boxes[a * width], &boxes[b * width], dims, d);
    });
    joined.clear();
    for (const std::uint32_t i : order) {
      const std::int64_t* next = &boxes[i * width];
      std::int64_t* last = joined.empty() ? nullptr : &joined[joined.size() - width];
      if (last != nullptr && last[2 * d + 1] == next[2 * d] && detail::is_equal_across(last, next, dims, d))
        last[2 * d + 1] = next[2 * d + 1];
      else
        joined.insert(joined.end(), next, next + width);
    }
    unchanged = joined.size() == boxes.size() ? unchanged + 1 : 0;
    boxes.swap(joined);
  }
}

}  // namespace shardmesh::covering
