// SPDX-License-Identifier: Apache-2.0
// reader: a folder of torch.distributed.checkpoint as a checkpoint. Not here: .metadata (metadata).
export module shardmesh.dcp:reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import shardmesh.catalog;
import :metadata;

export namespace shardmesh::dcp {

/// A folder that torch.distributed.checkpoint wrote: `.metadata` (or `__N.metadata` of every rank) and `.distcp` files.
/// Reads the metadata only; items are opened when they are asked for.
/// \errors errc::incomplete_save without metadata; errc::bad_pickle, errc::bad_format, errc::unsafe_path for metadata
///         that cannot be used. Source: torch/distributed/checkpoint/{metadata,filesystem}.py
result<std::unique_ptr<checkpoint_reader>> open(const std::filesystem::path& folder, const open_options& options = {});

/// What the metadata of a DCP folder holds beside entries; empty for readers of other formats. Looks through readers
/// that show parts of another one.
const extras& extras_of(const checkpoint_reader& reader);

/// What the pickle of a metadata file of the folder names, as `pickle::names_in` says it: found when the file was read,
/// so that nobody has to read it again. Null for other files, for those of which only parts were read, and for readers
/// of other formats.
const pickle::used_names* names_of_metadata(const checkpoint_reader& reader, const std::filesystem::path& file);

}  // namespace shardmesh::dcp
