// SPDX-License-Identifier: Apache-2.0
// Writes folders of torch_checkpointing: metadata.pkl and the ranks' files, as the package's own saves have them.
export module shardmesh.torch_checkpointing:save;

import shardmesh.std;
import shardmesh.core;
import shardmesh.transfer;
import shardmesh.checkpoint_core;
import :metadata;

export namespace shardmesh::torch_checkpointing {

/// The form of a folder's items.
struct folder_options {
  /// With safetensors, items whose entries are all tensors that safetensors can hold get safetensors files; other items
  /// get files of torch.save.
  payload files = payload::torch;
  std::string item;  // everything goes below this item; empty: the first name of each path is its item
};

/// The largest number of ranks in a written folder; each rank has a file of every item.
inline constexpr std::int32_t max_ranks = 65'536;

/// Writes ITEM_RANK.pt (or .safetensors) for every item and rank, metadata.pkl, and the record of `checksum`. A chunk
/// is a plain tensor in its rank's file; chunks of one rank that form one box are merged into it. Objects, and tensors
/// of other representations, keep the form of their archives in the pickles. Objects of at most one MiB are in every
/// rank's pickle, larger ones in rank 0's. Streams from `source`; archives stay in memory until everything is written.
/// \errors errc::unsupported for each tensor whose dtype PyTorch lacks; those of `torch_file::state_file::make`;
///         errc::unsupported (`files` other than safetensors or torch; more than `max_ranks`); two entries of one path;
///         those of source, staged output, and executor
/// Source: torch_checkpointing/checkpoint_writer.py
result<save_report> save(const std::filesystem::path& destination, std::vector<output_tensor> tensors,
                         std::span<const output_object> objects, element_source source, const folder_options& format,
                         const save_options& options = {});

}  // namespace shardmesh::torch_checkpointing
