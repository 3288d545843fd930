// SPDX-License-Identifier: Apache-2.0
// Splits known wrapping tensors into their components, which `component_reader` presents as entries. Not exported.
module shardmesh.torch_file:known_wrapper;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import :item;
import :wrapper_description;

namespace shardmesh::torch_file {

// Splits an opaque tensor. Empty for unknown classes, and for pickles of another form than the known one, such as those
// of later versions.
// Cost: O(size of the description).
std::optional<wrapper_parts> take_wrapper_apart(const torch_file::item& item, const pickle::value& value);

}  // namespace shardmesh::torch_file
