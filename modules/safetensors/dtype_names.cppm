// SPDX-License-Identifier: Apache-2.0
// Not exported: the dtype of a name in a safetensors file. The name of a dtype is in `header`.
module shardmesh.safetensors:dtype_names;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh::safetensors {

// Returns the dtype of that name; F4 is float4_e2m1fn here.
std::optional<dtype> parse_dtype_name(std::string_view text);

}  // namespace shardmesh::safetensors
