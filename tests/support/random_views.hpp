// SPDX-License-Identifier: Apache-2.0
// Random strided views over their own memory, for tests of kernels. Uses only headers of the global module, so it can
// be included anywhere.
#pragma once
#include <shardmesh/tensor_view.hpp>

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace random_views {

/// A view and its memory. `item` is the element's size in bytes.
struct owned_view {
  std::vector<std::byte> memory;
  shardmesh::tensor_view view;
  std::size_t item = 1;

  std::int64_t offset_of(const shardmesh::extents& index) const {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < index.rank(); ++d) offset += index[d] * view.strides[d];
    return offset * static_cast<std::int64_t>(item);
  }
  std::byte* at(const shardmesh::extents& index) const { return view.data + offset_of(index); }
};

/// Makes a view with a random order of dimensions, random gaps, some negative strides, and misaligned memory. With
/// `broadcast`, some strides are 0.
inline owned_view make(std::mt19937_64& random, const shardmesh::extents& sizes, shardmesh::dtype type,
                       std::size_t item, bool broadcast) {
  const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(random() % n); };
  owned_view made;
  made.item = item;
  made.view.type = type;
  made.view.sizes = sizes;
  made.view.strides = sizes;
  std::vector<std::size_t> order(sizes.rank());
  for (std::size_t d = 0; d < order.size(); ++d) order[d] = d;
  if (below(2) == 0)
    for (std::size_t d = order.size(); d > 1; --d) std::swap(order[d - 1], order[static_cast<std::size_t>(below(d))]);
  const bool gaps = below(2) == 0, turns = below(3) == 0;
  std::int64_t step = gaps ? 1 + below(2) : 1;
  std::int64_t first = 0;
  bool empty = false;
  for (std::size_t d = order.size(); d-- > 0;) {
    const std::size_t dim = order[d];
    const std::int64_t size = sizes[dim];
    empty = empty || size == 0;
    if (broadcast && below(5) == 0) {
      made.view.strides[dim] = 0;
      continue;
    }
    made.view.strides[dim] = step;
    if (turns && size > 0 && below(2) == 0) {
      made.view.strides[dim] = -step;
      first += (size - 1) * step;
    }
    step = step * (size > 0 ? size : 1) + (gaps ? below(3) : 0);
  }
  made.memory.resize(static_cast<std::size_t>(step + 1) * item + 1);
  for (std::byte& b : made.memory) b = static_cast<std::byte>(random());
  made.view.data = made.memory.data() + 1 + (empty ? 0 : first * static_cast<std::int64_t>(item));
  return made;
}

inline shardmesh::extents random_sizes(std::mt19937_64& random) {
  const std::size_t rank = random() % 6;
  shardmesh::extents sizes;
  const std::int64_t most = rank <= 2 ? 90 : 7;
  for (std::size_t d = 0; d < rank; ++d)
    sizes.push_back(random() % 12 == 0 ? static_cast<std::int64_t>(random() % 2)
                                       : 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most)));
  return sizes;
}

}  // namespace random_views
