// SPDX-License-Identifier: Apache-2.0
// Opens a folder of torch_checkpointing as a checkpoint. metadata.pkl is parsed in metadata.
export module shardmesh.torch_checkpointing:reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

export namespace shardmesh::torch_checkpointing {

/// Returns true when the folder has a metadata.pkl, by which the package recognises its folders.
bool is_folder(const std::filesystem::path& folder);

/// Opens a folder that torch_checkpointing wrote: metadata.pkl and the ranks' files. Keys are those of the saved dict
/// of items, flattened as DCP does. A box that several ranks hold is read from the first rank whose file exists.
/// Entries that the metadata does not describe (numbers, items without a resharder) become one entry when all ranks
/// saved the same value. Otherwise they become one entry per rank, KEY.rank_N.
/// \errors those of `parse_metadata`; those of opening a rank's file. Defects of single tensors are in `problems()`.
/// Cost: opens every file and reads its pickle or header; compares the entries that the metadata does not describe.
result<std::unique_ptr<checkpoint_reader>> open(const std::filesystem::path& folder, const open_options& options = {});

}  // namespace shardmesh::torch_checkpointing
