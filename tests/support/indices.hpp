// SPDX-License-Identifier: Apache-2.0
// Walks over indices, one by one, for the models of tests. Uses only headers of the global module, so that it can be
// included before any import.
#pragma once
#include <shardmesh/extents.hpp>

#include <cstddef>
#include <cstdint>

namespace indices {

/// Calls `visit(index)` for every index in row-major order.
template <class Visit>
void for_each(const shardmesh::extents& sizes, Visit visit) {
  for (const std::int64_t size : sizes)
    if (size == 0) return;
  shardmesh::extents index = shardmesh::extents::filled(sizes.rank(), 0);
  for (;;) {
    visit(index);
    std::size_t d = sizes.rank();
    while (d > 0 && ++index[d - 1] == sizes[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

inline shardmesh::extents sum(shardmesh::extents a, const shardmesh::extents& b) {
  for (std::size_t d = 0; d < a.rank(); ++d) a[d] += b[d];
  return a;
}

/// Like for_each, over a box of a tensor (`shardmesh::box`, a module type).
template <class Box, class Visit>
void for_each_in(const Box& where, Visit visit) {
  for_each(where.sizes, [&](const shardmesh::extents& index) { visit(sum(index, where.offsets)); });
}

/// The row-major number of an element in a tensor of this shape.
inline std::int64_t row_major(const shardmesh::extents& index, const shardmesh::extents& shape) {
  std::int64_t number = 0;
  for (std::size_t d = 0; d < shape.rank(); ++d) number = number * shape[d] + index[d];
  return number;
}

}  // namespace indices
