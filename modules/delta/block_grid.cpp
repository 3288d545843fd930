// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
module shardmesh.delta;

import shardmesh.core;
import :block_grid;

namespace shardmesh::delta {
namespace {

std::int64_t quotient_up(std::int64_t a, std::int64_t b) {
  return a / b + (a % b > 0 ? 1 : 0);
}

}  // namespace

block_grid::block_grid(const extents& shape, std::int64_t most)
    : shape_(shape), sizes_(extents::filled(shape.rank(), 1)), counts_(shape) {
  if (box::whole(shape).is_empty()) return;
  std::int64_t inner = 1;
  for (std::size_t d = shape.rank(); d-- > 0;) {
    // Blocks along one dimension have nearly equal sizes, so that none is tiny.
    const std::int64_t pieces = quotient_up(shape[d], std::max<std::int64_t>(most / inner, 1));
    sizes_[d] = quotient_up(shape[d], pieces);
    counts_[d] = quotient_up(shape[d], sizes_[d]);
    if (counts_[d] > 1) break;  // the dimensions before it keep the size 1
    inner *= shape[d];
  }
  count_ = 1;
  for (const std::int64_t count : counts_) count_ *= count;  // at most the number of elements
}

box block_grid::block(std::int64_t number) const {
  box made{extents::filled(shape_.rank(), 0), sizes_};
  for (std::size_t d = shape_.rank(); d-- > 0;) {
    made.offsets[d] = number % counts_[d] * sizes_[d];
    made.sizes[d] = std::min(sizes_[d], shape_[d] - made.offsets[d]);
    number /= counts_[d];
  }
  return made;
}

result<void> block_grid::for_each_meeting(
    const box& part, function_ref<result<void>(std::int64_t number, const box& block)> visit) const {
  if (count_ == 0 || part.is_empty()) return {};
  const std::size_t rank = shape_.rank();
  extents first = extents::filled(rank, 0), last = first;
  for (std::size_t d = 0; d < rank; ++d) {
    first[d] = part.offsets[d] / sizes_[d];
    last[d] = (part.end(d) - 1) / sizes_[d];
  }
  extents at = first;
  while (true) {
    std::int64_t number = 0;
    for (std::size_t d = 0; d < rank; ++d) number = number * counts_[d] + at[d];
    SHARDMESH_TRY(visit(number, block(number)));
    std::size_t d = rank;
    while (d > 0 && ++at[d - 1] > last[d - 1]) {
      --d;
      at[d] = first[d];
    }
    if (d == 0) return {};
  }
}

}  // namespace shardmesh::delta
