// SPDX-License-Identifier: Apache-2.0
// Not exported: functions over many boxes of one tensor, which may overlap. They test for overlaps, group the boxes
// that can move together, and choose the parts of a stored chunk to read. Reading is in load_assignment and
// reading_rounds.
module shardmesh.collective_checkpoint:box_sets;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

namespace shardmesh {

// Returns whether no two of these boxes of `rank` dimensions share a cell. Cost: O(n log n); O(n) if together they fill
// a box.
bool are_apart(std::size_t rank, std::span<const box> boxes);

// Returns the number of a layer for each box. Boxes of one layer are disjoint or equal, as one side of a transfer
// requires. Boxes that are all disjoint or equal form one layer. Precondition: equal boxes are neighbours.
// Cost: as `are_apart` for one layer, else O(n^2).
std::vector<std::size_t> layers_of(std::size_t rank, std::span<const box> boxes);

// Returns the boxes of a row-major stored chunk to read, so that all of `wanted` is read, and no byte twice: the result
// is disjoint. A gap is read as well if skipping it would cost as much. `wanted`: within the chunk, in the tensor's
// indices.
// Cost: O(n^2) for each dimension.
std::vector<box> readable_boxes(const box& chunk, std::span<const box> wanted, std::int64_t item_bytes);

// Cuts `whole` into pieces of at most `most_elements` and about equal size. `order` lists the dimensions as they are
// stored, the outermost first (empty: row-major); in that order each piece directly follows the one before it.
std::vector<box> cut_in_order(const box& whole, const extents& order, std::int64_t most_elements);

}  // namespace shardmesh
