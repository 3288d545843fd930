// SPDX-License-Identifier: Apache-2.0
// Not exported: a piece of a mapping as a transfer. Its loops are the dimensions of a tensor that exists only in the
// plan. The boxes that ranks hold of the source and of the target become boxes of the loops, and views of the ranks'
// memory with other strides. The planner and the executor then need no knowledge of mappings.
module shardmesh.mapping:piece_sides;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :element_pieces;

namespace shardmesh {

// The loops of a piece that are dimensions of its transfer: first those that only the source has (repetitions, of which
// the target takes one), then those of both sides. Loops that only the target has are not dimensions: the target gets
// one copy, and repeats it.
struct piece_space {
  std::vector<std::size_t> loops;   // numbers of the piece's loops
  std::size_t repeated = 0;         // the first dimensions, of the source only
  std::vector<std::size_t> copied;  // numbers of the loops that only the target has
  extents shape;
};
piece_space space_of(const index_piece& piece);

// Returns the distribution of a piece's source: slot i of a rank is its i-th box of the loops.
result<distribution> source_side(const index_piece& piece, const distribution& source);

// Returns this rank's slots of that distribution. `slots` are its slots of the source, which hold its fragments.
std::vector<const_tensor_view> source_slots(const index_piece& piece, const distribution& source, owner_id rank,
                                            std::span<const const_tensor_view> slots);

// The target's side of a transfer. If the target repeats elements, boxes of the loops could overlap. They are then
// divided at `cuts`, and equal boxes of a rank are one slot.
struct target_side {
  distribution where;
  bool is_repeated = false;
  std::vector<std::vector<std::int64_t>> cuts;  // per dimension, ascending; empty if nothing is divided
};
// \errors errc::unsupported for repetitions that the ranks divide into more than 1,048,576 boxes
result<target_side> side_of_target(const index_piece& piece, const distribution& target);

// The memory of a target that one slot of the transfer fills. Its dimensions are those of the transfer, of size 1 for
// the source's repetitions, and then the loops that only the target has.
struct target_place {
  std::int32_t slot = 0;
  box where;  // of the transfer's dimensions
  tensor_view memory;
};

// Returns the places of this rank, in the order of their boxes. Several places may have one slot.
std::vector<target_place> places_of_target(const index_piece& piece, const target_side& side,
                                           const distribution& target, owner_id rank,
                                           std::span<const tensor_view> slots);

// Returns the index in the target of an element of the transfer, without repetitions.
box element_of_target(const index_piece& piece, const extents& index);

}  // namespace shardmesh
