// SPDX-License-Identifier: Apache-2.0
// Not exported: the files of a folder that make up one model, and their opening.
module shardmesh.safetensors:hf_choice;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import :hf;

namespace shardmesh::safetensors {

// The files that make up the model.
struct hf_choice {
  std::filesystem::path folder;
  std::vector<std::string> files;
  std::optional<hf_index> index;
  std::string index_name;
  std::vector<std::string> set_aside;  // other files beside the whole model
  std::filesystem::path single{};      // the only file, as the user named it: a URL may have a query

  std::filesystem::path path_of(const std::string& name) const;
};

// Chooses by the index, or else by name. `path`: as in `open_hf_folder`.
// \errors errc::bad_format (no safetensors file exists, or several indices), errc::io; those of `parse_hf_index`
result<hf_choice> choose_files(const std::filesystem::path& path, file_pool& pool);

// Checks that an index without entries stands for a model without tensors.
result<void> check_not_empty(const hf_choice& chosen, file_pool& pool);

// Opens the chosen files. An error about a missing file names a tensor that the index has in it.
result<std::vector<hf_file>> open_files(const hf_choice& chosen, file_pool& pool);

// Returns the stem that all files share.
std::string stem_of(const hf_choice& chosen, const std::vector<hf_file>& files);

}  // namespace shardmesh::safetensors
