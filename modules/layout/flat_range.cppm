// SPDX-License-Identifier: Apache-2.0
// Converts a range of a tensor's elements in memory order to boxes. The range that each rank holds is in fsdp's
// `flat_parameter`.
export module shardmesh.layout:flat_range;

import shardmesh.std;
import shardmesh.core;
import :split_rule;

export namespace shardmesh {

/// Returns the dimensions of a dense tensor, from the slowest-varying in memory to the fastest: 0, 1, 2, .. for a
/// row-major tensor, and 0, 2, 3, 1 for channels_last. Returns nothing when the elements have gaps, overlap, or run
/// backwards. Ignores the strides of dimensions of size 1 and of an empty tensor. Cost: O(rank^2).
std::optional<extents> memory_order(const extents& sizes, const extents& strides);

/// A box of a tensor whose elements are contiguous in memory, starting `begin` elements after the tensor's first.
struct flat_box {
  box where;
  std::int64_t begin = 0;
  friend bool operator==(const flat_box&, const flat_box&) = default;
};

/// Splits the elements [range.begin, range.begin + range.size) of a dense tensor, in memory order, into the fewest
/// boxes that are contiguous in memory: at most 2 * rank - 1, and one for a scalar.
/// \param sizes  sizes of the tensor
/// \param order  the tensor's `memory_order`
/// Precondition: the range lies in the tensor. Cost: O(rank^2).
std::vector<flat_box> boxes_of_range(const extents& sizes, const extents& order, index_range range);
/// The same for a row-major tensor.
std::vector<flat_box> boxes_of_range(const extents& sizes, index_range range);

}  // namespace shardmesh
