// SPDX-License-Identifier: Apache-2.0
// Not exported: the comparison of two objects, and of the descriptions of two wrapping tensors.
module shardmesh.checkpoint:object_comparison;

import shardmesh.std;
import shardmesh.core;
import :diff;

namespace shardmesh {

// Compares objects by their types and values; where a value has no text, by the bytes.
result<std::vector<key_difference>> compare_objects(const diff_side& left, const diff_entry& a, const diff_side& right,
                                                    const diff_entry& b);

// Compares descriptions without the components' dtypes, shapes, and strides. Those are compared with the components,
// as tensors.
result<std::vector<key_difference>> compare_descriptions(const diff_side& left, const diff_entry& a,
                                                         const diff_side& right, const diff_entry& b);

}  // namespace shardmesh
