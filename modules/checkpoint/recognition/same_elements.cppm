// SPDX-License-Identifier: Apache-2.0
// Not exported: compares the elements of two chunks, for files of ranks that hold copies of a tensor.
module shardmesh.checkpoint:same_elements;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

namespace shardmesh {

// Returns true when two opened chunks of equal dtype and shape have equal elements. Equal checksums decide; otherwise
// the elements are compared, 8 MiB at a time.
result<bool> have_same_elements(const opened_chunk& a, const opened_chunk& b);

}  // namespace shardmesh
