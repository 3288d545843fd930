// SPDX-License-Identifier: Apache-2.0
// Not exported: checks that the boxes of all ranks hold every element of a tensor.
module shardmesh.replicas:box_cover;

import shardmesh.std;
import shardmesh.core;
import :described_part;

namespace shardmesh {

// Checks that each element is in one box, or in equal ones on several ranks. Adds errc::gap and errc::overlap with the
// key and the box: the first ten of the tensor.
void check_cover_of(const merged_entry& entry, detail::problem_list& problems);

}  // namespace shardmesh
