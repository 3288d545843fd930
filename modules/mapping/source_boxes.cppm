// SPDX-License-Identifier: Apache-2.0
// The boxes of source tensors that make one tensor of a mapping, as a list to show. Reads do not use it: they work with
// the pieces of an `index_relation`.
export module shardmesh.mapping:source_boxes;

import shardmesh.std;
import shardmesh.core;
import :binding;

export namespace shardmesh {

/// A box of a tensor that a mapping makes, and the box of a source that fills it. The dimensions of the source with a
/// size other than 1 are those of the target, perhaps in another order.
struct source_box {
  box target;
  std::size_t source = 0;  // of the checkpoint's tensors
  box from;
};

/// The boxes of a tensor, and the number of those that are not in the list.
struct source_box_list {
  std::vector<source_box> boxes;
  std::int64_t more = 0;  // saturates
};

/// Lists the boxes that make a tensor. Filler is in no box. If several elements of the sources must be equal
/// (repetitions, steps of an optimizer), each of them has a box.
/// \param tensor  one of `bound.tensors`
/// \param most    the length of the list; the other boxes are counted
/// Cost: O(most + pieces).
source_box_list source_boxes_of(const bound_mapping& bound, const bound_tensor& tensor, std::size_t most = 4096);

}  // namespace shardmesh
