// SPDX-License-Identifier: Apache-2.0
// Not exported: boxes that may overlap, divided into layers that one side of a transfer can hold.
module shardmesh.replicas:box_layers;

import shardmesh.std;
import shardmesh.core;
import :described_part;

namespace shardmesh {

// Returns the indices of the boxes of each layer. The boxes of one layer are disjoint. Without boxes, there is one
// empty layer. `boxes`: distinct. Cost: O(n log n) for boxes that are all disjoint, else O(n^2).
std::vector<std::vector<std::size_t>> box_layers(std::size_t rank, std::span<const merged_box> boxes);

}  // namespace shardmesh
