// SPDX-License-Identifier: Apache-2.0
// reader: a folder of torch_checkpointing as a checkpoint. Not here: metadata.pkl (metadata).
export module shardmesh.torch_checkpointing:reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;

export namespace shardmesh::torch_checkpointing {

/// Whether the folder has a metadata.pkl, by which the package knows its own.
bool is_folder(const std::filesystem::path& folder);

/// A folder that torch_checkpointing wrote: metadata.pkl and the ranks' files. Keys are those of the saved dict of
/// items, flattened as DCP does. A box that several ranks hold is read from the first of them that has its file. What
/// the metadata does not describe (numbers, items without a resharder) is one entry where all ranks saved the same, and
/// one for each rank, KEY.rank_N, where they differ.
/// \errors those of `parse_metadata`; those of opening a rank's file. What single tensors lack is in `problems()`.
/// Cost: opens every file and reads its pickle or header; compares what the metadata does not describe.
result<std::unique_ptr<checkpoint_reader>> open(const std::filesystem::path& folder, const open_options& options = {});

}  // namespace shardmesh::torch_checkpointing
