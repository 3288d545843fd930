// SPDX-License-Identifier: Apache-2.0
// Opens a torchsnapshot folder as a checkpoint. Its entries come from `manifest`.
export module shardmesh.torchsnapshot:reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

export namespace shardmesh::torchsnapshot {

/// Returns whether the folder has a snapshot's manifest.
bool is_snapshot(const std::filesystem::path& folder);

/// Opens a snapshot. Keys are the logical paths joined with dots. Replicated and sharded entries appear once. With
/// several ranks, each rank's own entries appear below `rank_R`.
/// \errors errc::bad_format for an invalid manifest; errc::duplicate_key; errc::unsafe_path for files outside the
///   folder; errc::unsupported for the YAML of development versions. Inconsistent entries become problems of the
///   reader.
/// Source: torchsnapshot 0.1.0, manifest.py
result<std::unique_ptr<checkpoint_reader>> open(const std::filesystem::path& folder, const open_options& options = {});

}  // namespace shardmesh::torchsnapshot
