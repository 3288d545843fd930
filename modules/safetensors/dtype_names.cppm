// SPDX-License-Identifier: Apache-2.0
// Not exported: finds the dtype that a safetensors file names. The name of a dtype is in `header`.
module shardmesh.safetensors:dtype_names;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh::safetensors {

// Returns the dtype with this name; nothing for an unknown name. "F4" is float4_e2m1fn: the shapes in files count
// single elements.
std::optional<dtype> parse_dtype_name(std::string_view text);

}  // namespace shardmesh::safetensors
