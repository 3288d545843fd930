// SPDX-License-Identifier: Apache-2.0
// Not exported: folders that hold several checkpoints, such as a trainer's (model, optimizer, scheduler) or a
// pipeline's (unet, vae). Opening one of them is in open; all of them as one checkpoint are in all_parts.
module shardmesh.checkpoint:folder_parts;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :rank_file_name;

namespace shardmesh {

// One of a folder's checkpoints.
struct checkpoint_part {
  std::string name;            // "optimizer" for optimizer.bin, "unet" for unet/, "model" for model.safetensors
  std::filesystem::path path;  // its file or folder; the surrounding folder if it is made of many files there
  std::optional<rank_file_group> ranks{};  // set if it is made of these ranks' files
  std::optional<checkpoint_format> own{};  // set if it is made of the folder's own files of this format
  bool is_consolidated = false;            // true if it is made of Meta's consolidated.NN.pth
  std::string whole_name{};                // "optimizer.bin": distinguishes parts of the same name

  // True when it is made of files in the folder, without a file or folder of its own.
  bool is_of_folder() const { return ranks || own || is_consolidated; }
  bool is_model() const {
    return own == checkpoint_format::hf || own == checkpoint_format::torch_files || own == checkpoint_format::npz;
  }
};

// Lists the checkpoints of formats that know their own files: DCP, torchsnapshot, torch_checkpointing, and DeepSpeed.
// Their name is "checkpoint"; a DeepSpeed step in a folder below has the name of the step. errc::io
result<std::vector<checkpoint_part>> list_own_checkpoints(const std::filesystem::path& folder);

// Lists models and files of ranks (also Meta's), which are recognised by name. Files for which `is_claimed` holds
// belong to other checkpoints. errc::io; errc::duplicate_key for two files of one rank
result<std::vector<checkpoint_part>> list_named_files(const std::filesystem::path& folder,
                                                      function_ref<bool(const std::string& name)> is_claimed);

// Returns true when a file's name alone shows that it belongs to the part.
bool is_name_of(const checkpoint_part& part, const std::string& name);

// Gives parts of equal names their `whole_name`: the full file name, or the kind of a part without a file of its own. A
// folder keeps its name.
void make_names_unique(std::vector<checkpoint_part>& parts);

// Lists the parts of a folder, by name: the results of `list_own_checkpoints` and `list_named_files`, other files that
// may be checkpoints, and folders that are checkpoints. Links are included, because the caller asks for a part by name.
// errc::io
result<std::vector<checkpoint_part>> list_parts(const std::filesystem::path& folder);

// Opens FOLDER/NAME, a path that does not exist, as the part NAME of the folder; null when there is no such part.
result<std::unique_ptr<checkpoint_reader>> open_named_part(const std::filesystem::path& path,
                                                           const open_options& options);

// Opens one part.
result<std::unique_ptr<checkpoint_reader>> open_part(const checkpoint_part& part, const open_options& options);

// Joins the names of the parts for a hint: "optimizer, unet, vae".
std::string names_of(std::span<const checkpoint_part> parts);

}  // namespace shardmesh
