// SPDX-License-Identifier: Apache-2.0
// open: a checkpoint of whichever format. Not here: the formats (dcp, torch_file, safetensors).
export module shardmesh.checkpoint:open;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;

export namespace shardmesh {

/// Opens whatever it is: a DCP folder (Megatron's, too, and a run's folder of it), a .pt file, a pickle, a TorchScript
/// archive or an exported program, a safetensors file, a Hugging Face folder, a folder of .bin files or of ranks' .pt
/// files, one of DeepSpeed, torchsnapshot or torch_checkpointing. A path that does not exist may name a part of the
/// folder that it would lie in: "checkpoint-5/optimizer" of optimizer.pt.
/// \errors errc::io; errc::bad_format when it is none of them, naming the parts of a folder that holds several;
///         errc::incomplete_save for a folder of .distcp files without metadata; the format's own.
result<std::unique_ptr<checkpoint_reader>> open_checkpoint(const std::filesystem::path& path,
                                                           const open_options& options = {});

/// Everything that lies in a folder, at any depth, as one checkpoint (format `parts`): its own checkpoint of whatever
/// format, a model, files of ranks, other files that can be opened, folders that are checkpoints. Keys are "PART.KEY".
/// A file, and a folder that is one checkpoint and no more, open as that. `warnings()` and `notes()` name everything
/// that is not taken. A symbolic link within the folder is followed once.
/// \errors those of `open_checkpoint`. A damaged part, and a link that leads out of the folder and may hold tensors, is
///         one of the `problems()`; a file that no format reads is a warning.
/// Cost: lists every folder below, opens every part.
result<std::unique_ptr<checkpoint_reader>> open_parts(const std::filesystem::path& folder,
                                                      const open_options& options = {});

}  // namespace shardmesh
