// SPDX-License-Identifier: Apache-2.0
// A range of a tensor's elements in memory order, as boxes. Not here: which range a rank holds (fsdp's flat_parameter).
export module shardmesh.layout:flat_range;

import shardmesh.std;
import shardmesh.core;
import :split_rule;

export namespace shardmesh {

/// The dimensions of a dense tensor from the one that varies slowest in memory to the one that varies fastest:
/// 0, 1, 2, .. for a row-major tensor, 0, 2, 3, 1 for channels_last. Nothing when the elements have gaps, overlap or
/// run backwards. Strides of dimensions of size 1 say nothing, nor do those of an empty tensor. Cost: O(rank^2).
std::optional<extents> memory_order(const extents& sizes, const extents& strides);

/// A box of a tensor whose elements lie one after the other in memory, `begin` elements after the tensor's first.
struct flat_box {
  box where;
  std::int64_t begin = 0;
  friend bool operator==(const flat_box&, const flat_box&) = default;
};

/// The elements [range.begin, range.begin + range.size) of a dense tensor, in the order of its memory, as the fewest
/// boxes that are contiguous there: at most 2 * rank - 1, one for a scalar.
/// \param sizes  of the tensor
/// \param order  its `memory_order`
/// Precondition: the range lies in the tensor. Cost: O(rank^2).
std::vector<flat_box> boxes_of_range(const extents& sizes, const extents& order, index_range range);
/// Of a row-major tensor.
std::vector<flat_box> boxes_of_range(const extents& sizes, index_range range);

}  // namespace shardmesh
