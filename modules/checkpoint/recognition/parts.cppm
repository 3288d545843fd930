// SPDX-License-Identifier: Apache-2.0
// Not exported: folders that hold several checkpoints: a trainer's (model, optimizer, scheduler), a pipeline's (unet,
// vae). Not here: what one of them is (open), all of them as one checkpoint (all_parts).
module shardmesh.checkpoint:parts;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;
import :rank_file_name;

namespace shardmesh {

// One of a folder's checkpoints.
struct checkpoint_part {
  std::string name;            // "optimizer" of optimizer.bin, "unet" of unet/, "model" of model.safetensors
  std::filesystem::path path;  // of its file or folder; the folder itself for what lies in it as many files
  std::optional<rank_file_group> ranks{};  // the files of these ranks
  std::optional<checkpoint_format> own{};  // the folder's own files of this format
  std::string whole_name{};                // "optimizer.bin": what tells it from others of its name

  // Made of files in the folder, without a file or a folder of its own.
  bool is_of_folder() const { return ranks || own; }
  bool is_model() const { return own == checkpoint_format::hf || own == checkpoint_format::torch_files; }
};

// The checkpoints of formats that know their files: a DCP folder, a snapshot, a folder of torch_checkpointing, of
// DeepSpeed. They are called "checkpoint"; a step of DeepSpeed's, which lies below the folder, as the step. errc::io
result<std::vector<checkpoint_part>> list_own_checkpoints(const std::filesystem::path& folder);

// Models and files of ranks, which are known by their names: files for which `is_claimed` holds are another's.
// errc::io; errc::duplicate_key for two files of one rank
result<std::vector<checkpoint_part>> list_named_files(const std::filesystem::path& folder,
                                                      function_ref<bool(const std::string& name)> is_claimed);

// Whether a file belongs to such a checkpoint by its name alone.
bool is_name_of(const checkpoint_part& part, const std::string& name);

// Two of one name have their whole file names; what has no file of its own says what it is. A folder keeps its name.
void make_names_unique(std::vector<checkpoint_part>& parts);

// The parts of a folder, by name: both of those above, other files that may be checkpoints, folders that are. Links are
// among them: naming one is asking for it. errc::io
result<std::vector<checkpoint_part>> list_parts(const std::filesystem::path& folder);

// Opens FOLDER/NAME, which is no file, as the part NAME of the folder; null when it has no such part.
result<std::unique_ptr<checkpoint_reader>> open_named_part(const std::filesystem::path& path,
                                                           const open_options& options);

// Opens one part.
result<std::unique_ptr<checkpoint_reader>> open_part(const checkpoint_part& part, const open_options& options);

// "optimizer, unet, vae": what to call for.
std::string names_of(std::span<const checkpoint_part> parts);

}  // namespace shardmesh
