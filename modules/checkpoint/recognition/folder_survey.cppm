// SPDX-License-Identifier: Apache-2.0
// Not exported: sorts the names in one folder into files that may be checkpoints, folders, links, and the rest. Reads
// only the first bytes of a file. The choice and the names of parts are in folder_parts and all_parts.
module shardmesh.checkpoint:folder_survey;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

namespace shardmesh {

// Names in the folder, ascending. Links are listed only in `links`.
struct folder_survey {
  std::vector<std::string> files;    // may be checkpoints, by name or first bytes
  std::vector<std::string> folders;  // without hidden ones
  std::vector<std::string> links;
  std::vector<std::string> beside;   // kinds that hold no tensors (config.json, README.md, .git/)
  std::vector<std::string> unknown;  // everything else: it may hold tensors
};

// Surveys a folder. Leaves out names for which `is_claimed` holds: they belong to a known checkpoint. The number of
// names is not limited. errc::io when the folder cannot be listed.
result<folder_survey> survey_folder(const std::filesystem::path& folder,
                                    function_ref<bool(const std::string& name)> is_claimed);

// Returns true for names of files that are opened whatever their first bytes are, so that damage to those bytes is
// reported.
bool is_weight_name(std::string_view name);

// Returns true for names of NumPy's archives and arrays.
bool is_numpy_name(std::string_view name);

// Returns the format that opens a file, judged by its name and first bytes: `torch_file`, `safetensors`, `gguf`, `npz`,
// `nemo`, or nothing if it does not look like a checkpoint. An archive must contain a pickle of torch.save, or begin
// with an array of NumPy.
std::optional<checkpoint_format> format_of_file(const std::filesystem::path& file);

// The target of a symbolic link.
struct link_end {
  std::filesystem::path real;  // canonical; empty if the link is broken
  bool is_inside = false;      // in the folder, or in the "blobs" of the Hugging Face cache that holds the folder
};
// Resolves a symbolic link. `top` must be canonical.
link_end follow_link(const std::filesystem::path& link, const std::filesystem::path& top);

}  // namespace shardmesh
