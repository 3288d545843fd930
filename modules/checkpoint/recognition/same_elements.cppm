// SPDX-License-Identifier: Apache-2.0
// Not exported: compares the elements of two chunks, or the content of two entries, for files of ranks that hold
// copies.
module shardmesh.checkpoint:same_elements;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

namespace shardmesh {

// Returns true when two opened chunks of equal dtype and shape have equal elements. Equal checksums decide; otherwise
// the elements are compared, 8 MiB at a time.
result<bool> have_same_elements(const opened_chunk& a, const opened_chunk& b);

// Returns true when two entries without plain elements have equal types, plain values, and bytes of storages, bit for
// bit. Content that a format does not keep is not equal to any other.
result<bool> have_same_content(checkpoint_reader& a, const whole_entry& entry, checkpoint_reader& b,
                               const whole_entry& other);

}  // namespace shardmesh
