// SPDX-License-Identifier: Apache-2.0
// Not exported: questions about many boxes of one tensor, which may overlap: whether they do, which of them can move
// together, what of a stored chunk has to be read for them. Not here: who reads it (load_assignment).
module shardmesh.collective_checkpoint:box_sets;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;

namespace shardmesh {

// Whether no two of these boxes of `rank` dimensions share a cell. Cost: O(n log n), O(n) when they fill a box
// together.
bool are_apart(std::size_t rank, std::span<const box> boxes);

// Per box, the number of a layer: boxes of one layer are apart or equal, as one side of a transfer wants them. One
// layer where boxes are apart or equal. Precondition: equal boxes are neighbours.
// Cost: as `are_apart`, else O(n^2).
std::vector<std::size_t> layers_of(std::size_t rank, std::span<const box> boxes);

// What to read of a stored chunk (row-major) so that all of `wanted` is read, and no byte twice: boxes that are apart.
// A gap that costs as much to leave out as to read is read, too. `wanted`: within the chunk, in the tensor's indices.
// Cost: O(n^2) for each dimension.
std::vector<box> readable_boxes(const box& chunk, std::span<const box> wanted, std::int64_t item_bytes);

// Pieces of `whole` of at most `most_elements`, about equal, that lie one after the other where the dimensions are
// stored in this order, the outermost first (empty: as they are).
std::vector<box> cut_in_order(const box& whole, const extents& order, std::int64_t most_elements);

}  // namespace shardmesh
