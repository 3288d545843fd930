// SPDX-License-Identifier: Apache-2.0
// The runs of one tensor dimension over all coordinates of the mesh dimensions that cut it. Not exported.
module shardmesh.layout:grid_axis;

import shardmesh.std;
import :cut;
import :model;
import :product;
import :split_rule;

namespace shardmesh {

// `cut` divides the indices of `held` among the coordinates of one mesh dimension. Returns the coordinates that get an
// index of [begin, end), as sorted ranges [first, last]. Indices are global.
// Cost: O(pieces with such an index + runs), or O(segments * log runs) for a cut of segments.
std::vector<std::pair<std::int64_t, std::int64_t>> coordinates_that_hold(const std::vector<index_run>& held,
                                                                         const dimension_cut& cut, std::int64_t begin,
                                                                         std::int64_t end);

// Returns the runs of the indices `within` of a dimension of `length`, over all coordinates of `cuts`. No index is held
// twice. `strides` has for each mesh dimension the step in rank numbers between neighbouring coordinates.
// Cost: O(log parts) for a plain cut of one run by an even rule, else O(runs).
run_axis axis_of(std::span<const mesh_cut> cuts, std::span<const std::int64_t> strides, std::int64_t length,
                 index_range within);

}  // namespace shardmesh
