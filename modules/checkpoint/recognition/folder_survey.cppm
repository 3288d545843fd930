// SPDX-License-Identifier: Apache-2.0
// Not exported: what lies in one folder, every name once: files that may be checkpoints, folders, links, and the rest.
// Of a file no more than its first bytes is read. Not here: which of it becomes a part, under which name (parts,
// all_parts).
module shardmesh.checkpoint:folder_survey;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;

namespace shardmesh {

// Names in the folder, ascending. Links stand among `links` alone.
struct folder_survey {
  std::vector<std::string> files;    // may be checkpoints, by their names or first bytes
  std::vector<std::string> folders;  // but for hidden ones
  std::vector<std::string> links;
  std::vector<std::string> beside;   // kinds that hold no tensors (config.json, README.md, .git/)
  std::vector<std::string> unknown;  // what else there is: it may hold tensors
};

// Names for which `is_claimed` holds belong to a checkpoint that is known, and are left out. Nothing is cut off.
// errc::io when the folder cannot be listed.
result<folder_survey> survey_folder(const std::filesystem::path& folder,
                                    function_ref<bool(const std::string& name)> is_claimed);

// Whether files of this name are opened whatever their first bytes are: a damaged one is a problem.
bool is_weight_name(std::string_view name);

// What opens a file of any name, by its name and its first bytes: `torch_file` or `safetensors`; nothing where it is no
// checkpoint, as far as these say. An archive must have a pickle of torch.save in it.
std::optional<checkpoint_format> format_of_file(const std::filesystem::path& file);

// Where a symbolic link ends.
struct link_end {
  std::filesystem::path real;  // canonical; empty: it leads to nothing
  bool is_inside = false;      // in the folder, or where the Hugging Face cache keeps what its snapshots link to
};
// `top`: canonical.
link_end follow_link(const std::filesystem::path& link, const std::filesystem::path& top);

}  // namespace shardmesh
