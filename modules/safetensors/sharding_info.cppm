// SPDX-License-Identifier: Apache-2.0
// Not exported: PyTorch's DCP_SHARDING_INFO, which says where the tensors of one file lie in the whole tensors.
module shardmesh.safetensors:sharding_info;

import shardmesh.std;
import shardmesh.core;
import :hf;

namespace shardmesh::safetensors {

// The offset of each tensor of one file in its global tensor.
using saved_offsets = std::unordered_map<std::string, extents>;

// Returns nothing for a file without this information.
// \errors errc::bad_format, errc::rank_too_large; each names the file, and the key where there is one
result<std::optional<saved_offsets>> read_sharding_info(const hf_file& file);

}  // namespace shardmesh::safetensors
