// SPDX-License-Identifier: Apache-2.0
// Not exported: the comparison of tensors whose values are not read, by their stored bytes.
module shardmesh.checkpoint:opaque_comparison;

import shardmesh.std;
import shardmesh.core;
import :diff;

namespace shardmesh {

// Compares the bytes of two opaque tensors if both sides have them as one item; otherwise the archives of the chunks,
// one by one. Returns nothing if they are equal.
result<std::optional<key_difference>> compare_opaque_tensors(const diff_side& left, const diff_entry& a,
                                                             const diff_side& right, const diff_entry& b);

}  // namespace shardmesh
