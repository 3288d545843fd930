// SPDX-License-Identifier: Apache-2.0
// Writing folders of torch_checkpointing: metadata.pkl and the ranks' files, as the package's own saves have them.
export module shardmesh.torch_checkpointing:save;

import shardmesh.std;
import shardmesh.core;
import shardmesh.transfer;
import shardmesh.catalog;
import :metadata;

export namespace shardmesh::torch_checkpointing {

/// How a folder holds its items.
struct folder_options {
  /// safetensors: the files of items that hold nothing but tensors which safetensors has; others stay torch.save's.
  payload files = payload::torch;
  std::string item;  // everything goes below this item; empty: the first name of each path is its item
};

/// The largest number of ranks that a folder is written for: each has a file of every item.
inline constexpr std::int32_t max_ranks = 65'536;

/// Writes ITEM_RANK.pt of every item and rank, metadata.pkl, and the record of `checksum`. A chunk lies in its rank's
/// file as a plain tensor; chunks of one rank that make one box are that box. Objects, and tensors of other
/// representations, lie in the pickles as their archives have them, objects in every rank's. Streams from `source`;
/// archives are in memory until all is written.
/// \errors in the report: those of `torch_file::state_file::make`; errc::unsupported (safetensors or torch only as
///         `files`; more than `max_ranks`); two entries of one path; those of source, staged output and executor.
///         Source: torch_checkpointing/checkpoint_writer.py
save_report save(const std::filesystem::path& destination, std::vector<output_tensor> tensors,
                 std::span<const output_object> objects, element_source source, const folder_options& format,
                 const save_options& options = {});

}  // namespace shardmesh::torch_checkpointing
