// SPDX-License-Identifier: Apache-2.0
// Not exported: folders that hold several checkpoints: a trainer's (model, optimizer, scheduler), a pipeline's (unet,
// vae). Not here: what one of them is (open).
module shardmesh.checkpoint:parts;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;
import :rank_file_name;

namespace shardmesh {

// One of a folder's checkpoints.
struct checkpoint_part {
  std::string name;            // "optimizer" of optimizer.bin, "unet" of unet/, "model" of model.safetensors
  std::filesystem::path path;  // of its file or folder; the folder itself for a model's files and those of ranks
  std::optional<rank_file_group> ranks{};  // the files of these ranks
  bool is_model = false;                   // the model's files that lie in the folder
};

// The parts of a folder, by name: the model that lies in it (safetensors, or files of torch.save), other files of
// torch.save, files of ranks, folders that are checkpoints. Two of one name have their whole file names. errc::io
result<std::vector<checkpoint_part>> list_parts(const std::filesystem::path& folder);

// Opens FOLDER/NAME, which is no file, as the part NAME of the folder; null when it has no such part.
result<std::unique_ptr<checkpoint_reader>> open_named_part(const std::filesystem::path& path,
                                                           const open_options& options);

// Opens one part.
result<std::unique_ptr<checkpoint_reader>> open_part(const checkpoint_part& part, const open_options& options);

// "optimizer, unet, vae": what to call for.
std::string names_of(std::span<const checkpoint_part> parts);

}  // namespace shardmesh
