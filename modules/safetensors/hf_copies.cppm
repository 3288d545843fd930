// SPDX-License-Identifier: Apache-2.0
// Not exported: the files of a folder without an index that hold copies of the same model.
module shardmesh.safetensors:hf_copies;

import shardmesh.std;
import :hf;

namespace shardmesh::safetensors {

// Returns whether a file name has a part's number: "model-00001-of-00002.safetensors".
bool is_part(const std::string& name);

// Removes files that are copies of others, and returns their names. When no file is more canonical than the others, all
// stay; a tensor in two of them is then an error.
std::vector<std::string> set_copies_aside(std::vector<hf_file>& files);

}  // namespace shardmesh::safetensors
