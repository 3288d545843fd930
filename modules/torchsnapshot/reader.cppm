// SPDX-License-Identifier: Apache-2.0
// reader: a torchsnapshot folder as a checkpoint. Not here: the manifest's entries (manifest).
export module shardmesh.torchsnapshot:reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;

export namespace shardmesh::torchsnapshot {

/// The folder has the manifest of a snapshot.
bool is_snapshot(const std::filesystem::path& folder);

/// Opens a snapshot. Keys are the logical paths joined with dots: what is replicated and what is sharded once, what
/// each of several ranks has of its own below `rank_R`.
/// \errors errc::bad_format for manifests that are none; errc::duplicate_key; errc::unsafe_path for files outside of the
///         folder; errc::unsupported for the YAML of development versions. Entries that lie are problems of the reader.
/// Source: torchsnapshot 0.1.0, manifest.py
result<std::unique_ptr<checkpoint_reader>> open(const std::filesystem::path& folder, const open_options& options = {});

}  // namespace shardmesh::torchsnapshot
