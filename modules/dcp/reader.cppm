// SPDX-License-Identifier: Apache-2.0
// Shows a folder of torch.distributed.checkpoint as a checkpoint. `.metadata` is in `metadata`.
export module shardmesh.dcp:reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import shardmesh.checkpoint_core;
import :metadata;

export namespace shardmesh::dcp {

/// Opens a folder that torch.distributed.checkpoint wrote: `.metadata` (or `__N.metadata` of every rank) and `.distcp`
/// files. Reads only the metadata; items are opened on demand.
/// \errors errc::incomplete_save without metadata; errc::bad_pickle, errc::bad_format, or errc::unsafe_path for
///         metadata that cannot be used
/// Source: torch/distributed/checkpoint/{metadata,filesystem}.py
result<std::unique_ptr<checkpoint_reader>> open(const std::filesystem::path& folder, const open_options& options = {});

/// Files by name.
using file_sources = std::map<std::string, std::shared_ptr<const byte_source>, std::less<>>;

/// Opens a DCP folder whose files are not in the file system, such as the members of an archive. `.metadata` is
/// required. The entries of Megatron's common.pt are also shown, and common.pt is then no side file.
/// \param folder  a path for messages; the reader's path. It need not exist
/// \param files   all files of the folder
/// \errors those of `open`
result<std::unique_ptr<checkpoint_reader>> open_files(const std::filesystem::path& folder, const file_sources& files,
                                                      const open_options& options = {});

/// Returns the contents of a DCP folder's metadata apart from the entries; `new_extras()` for readers of other formats.
/// Looks through readers that show parts of another one.
const extras& extras_of(const checkpoint_reader& reader);

/// Returns a reader of the items that the folder's catalog leaves out: a folder whose ranks saved without collectives
/// may hold several items with the same value (`metadata::copies`). Null when there are none, and for readers of other
/// formats. The result lives as long as `reader`.
checkpoint_reader* copies_of(const checkpoint_reader& reader);

/// Returns the chunks that repeat the box and the item of an earlier chunk, because entries KEY@RANK share them
/// (`metadata::shared_chunks`), as ascending positions in the catalog of `reader`. Does not look through views, whose
/// catalogs number chunks differently. Empty for readers of other formats.
std::span<const std::int32_t> shared_chunks_of(const checkpoint_reader& reader);

/// Returns the names in the pickle of one of the folder's metadata files, as `pickle::names_in` reports them. They were
/// collected when the file was read, so that it need not be read again. Null for other files, for files that were read
/// only in part, and for readers of other formats.
const pickle::used_names* names_of_metadata(const checkpoint_reader& reader, const std::filesystem::path& file);

}  // namespace shardmesh::dcp
