// SPDX-License-Identifier: Apache-2.0
// open: opens checkpoints of any format. The formats are rooms of their own (dcp, torch_file, safetensors, and others).
export module shardmesh.checkpoint:open;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

export namespace shardmesh {

/// Opens a checkpoint of any format. It may be a DCP folder (also Megatron's, or the folder of a Megatron run), a .pt
/// file, a pickle, a TorchScript archive, an exported program, a safetensors or GGUF file, a Hugging Face folder, a
/// folder of .bin files, of ranks' .pt files, or of Meta's consolidated.NN.pth, a folder of DeepSpeed, torchsnapshot,
/// or torch_checkpointing, a .npz archive or .npy file of NumPy, an MLX folder of weights.npz, or a .nemo file. A path
/// that does not exist may name a part of its parent folder: "checkpoint-5/optimizer" opens optimizer.pt. A URL, such
/// as "s3://bucket/step-100", is read through the store of its scheme (`register_store`).
/// \errors errc::io; errc::bad_format when it is not a checkpoint (names the checkpoints in a folder that holds
///         several); errc::incomplete_save for a folder of .distcp files without metadata; errc::unsupported for a
///         URL that no store reads; errc::deadline_exceeded; errc::cancelled; those of the format's reader.
result<std::unique_ptr<checkpoint_reader>> open_checkpoint(const std::filesystem::path& path,
                                                           const open_options& options = {});

/// Opens everything in a folder, at any depth, as one checkpoint (format `parts`): the folder's own checkpoint of any
/// format, a model, files of ranks, other files that can be opened, and folders that are checkpoints. Keys are
/// "PART.KEY". A file, or a folder that is a single checkpoint, opens as that checkpoint. `warnings()` and `notes()`
/// name everything that is not taken. A symbolic link within the folder is followed once.
/// \errors those of `open_checkpoint`. A damaged part is one of the `problems()`, as is a link out of the folder that
///         may lead to tensors. A file that no format reads is a warning.
/// Cost: lists every folder below, opens every part.
result<std::unique_ptr<checkpoint_reader>> open_parts(const std::filesystem::path& folder,
                                                      const open_options& options = {});

}  // namespace shardmesh
