// SPDX-License-Identifier: Apache-2.0
// Not exported: boxes whose numbers are in arrays, and checks of one box.
module shardmesh.layout:box_arrays;

import shardmesh.std;
import shardmesh.core;
import :cover;
import :distribution;

namespace shardmesh {

using box_indices = std::vector<std::uint32_t>;

struct box_arrays {
  std::size_t rank;
  std::span<const std::int64_t> offsets, sizes;
  std::span<const owner_id> owners;

  inline box_numbers at_index(std::size_t i) const { return {offsets.data() + i * rank, sizes.data() + i * rank}; }
  inline const std::int64_t* offsets_of(std::uint32_t i) const { return offsets.data() + i * rank; }
  inline const std::int64_t* sizes_of(std::uint32_t i) const { return sizes.data() + i * rank; }
  inline std::int64_t begin(std::uint32_t i, std::size_t d) const { return offsets[i * rank + d]; }
  inline std::int64_t size(std::uint32_t i, std::size_t d) const { return sizes[i * rank + d]; }
  inline std::int64_t end(std::uint32_t i, std::size_t d) const { return begin(i, d) + size(i, d); }
  inline box at(std::uint32_t i) const {
    return {extents(offsets.subspan(i * rank, rank)), extents(sizes.subspan(i * rank, rank))};
  }
  inline bool equal(std::uint32_t a, std::uint32_t b) const {
    return std::equal(offsets_of(a), offsets_of(a) + rank, offsets_of(b)) &&
           std::equal(sizes_of(a), sizes_of(a) + rank, sizes_of(b));
  }
};

inline bool is_empty(std::size_t rank, const std::int64_t* sizes) {
  return std::find(sizes, sizes + rank, 0) != sizes + rank;
}

inline bool is_within(const extents& shape, const std::int64_t* offsets, const std::int64_t* sizes) {
  for (std::size_t d = 0; d < shape.rank(); ++d)
    if (offsets[d] < 0 || sizes[d] < 0 || offsets[d] > shape[d] || sizes[d] > shape[d] - offsets[d]) return false;
  return true;
}

inline bool has_an_end(std::size_t rank, const std::int64_t* offsets, const std::int64_t* sizes) {
  for (std::size_t d = 0; d < rank; ++d)
    if (offsets[d] < 0 || sizes[d] < 0 || !checked_add(offsets[d], sizes[d])) return false;
  return true;
}

}  // namespace shardmesh
