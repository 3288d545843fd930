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

/// Everything that lies in a folder as one checkpoint (format `parts`): the model, other files of torch.save, files of
/// ranks, folders that are checkpoints. Keys are "PART.KEY". A path without parts is opened by itself.
/// \errors those of `open_checkpoint`; a damaged part is one of the `problems()`, one that cannot be read at all a
///         warning
result<std::unique_ptr<checkpoint_reader>> open_parts(const std::filesystem::path& folder,
                                                      const open_options& options = {});

}  // namespace shardmesh
