// SPDX-License-Identifier: Apache-2.0
// Not exported: the runs of one tensor dimension over all coordinates of the mesh dimensions that cut it.
module shardmesh.layout:grid_axis;

import shardmesh.std;
import :cut;
import :model;
import :product;
import :split_rule;

namespace shardmesh {

// The ranges of coordinates [first, last] of `cut` that hold any of the global indices [begin, end) of `held`.
// Touches only pieces that share an index with them, each of which is a box of the answer.
std::vector<std::pair<std::int64_t, std::int64_t>> coordinates_that_hold(const std::vector<index_run>& held,
                                                                         const dimension_cut& cut, std::int64_t begin,
                                                                         std::int64_t end);

// What all coordinates of `cuts` hold of the indices `within` of a dimension of `length`, none of which is held twice.
// `strides`: what a coordinate of each mesh dimension counts in the number of its rank.
// Cost: O(log parts) for a plain cut of a stretch by an even rule, else O(runs).
run_axis axis_of(std::span<const mesh_cut> cuts, std::span<const std::int64_t> strides, std::int64_t length,
                 index_range within);

}  // namespace shardmesh
