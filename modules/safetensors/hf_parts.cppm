// SPDX-License-Identifier: Apache-2.0
// Not exported: the tensors of several files, with the parts of one tensor joined.
module shardmesh.safetensors:hf_parts;

import shardmesh.std;
import shardmesh.core;
import :hf;

namespace shardmesh::safetensors {

// Returns the tensors of the files by name.
// \errors errc::duplicate_key, errc::missing_key, errc::dtype_mismatch, errc::shape_mismatch, errc::overflow; those of
//         `read_sharding_info`; each names key and file
result<std::vector<hf_tensor>> join_parts(const std::vector<hf_file>& files);

}  // namespace shardmesh::safetensors
