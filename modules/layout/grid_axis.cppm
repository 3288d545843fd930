// SPDX-License-Identifier: Apache-2.0
// The runs of one tensor dimension over all coordinates of the mesh dimensions that cut it. Not exported.
module shardmesh.layout:grid_axis;

import shardmesh.std;
import :cut;
import :model;
import :product;
import :split_rule;

namespace shardmesh {

// Returns the ranges of coordinates [first, last] of `cut` that hold any of the global indices [begin, end) of `held`.
// Visits only pieces that share an index with them, each of which yields a box, or all segments.
std::vector<std::pair<std::int64_t, std::int64_t>> coordinates_that_hold(const std::vector<index_run>& held,
                                                                         const dimension_cut& cut, std::int64_t begin,
                                                                         std::int64_t end);

// Returns the runs of the indices `within` of a dimension of `length`, over all coordinates of `cuts`. No index is held
// twice. `strides` has for each mesh dimension the step in rank numbers between neighbouring coordinates.
// Cost: O(log parts) for a plain cut of one run by an even rule, else O(runs).
run_axis axis_of(std::span<const mesh_cut> cuts, std::span<const std::int64_t> strides, std::int64_t length,
                 index_range within);

}  // namespace shardmesh
