// SPDX-License-Identifier: Apache-2.0
// The only way to open an archive of PyTorch (torch.save, torch.jit.save, torch.export.save). It refuses archives that
// contradict themselves and damaged pickles, so no reader or writer accepts an archive that `verify` refuses. The
// meaning of the records is in `item` and `exported_program`; room pickle lists the names in pickles.
export module shardmesh.torch_file:checked_archive;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;

export namespace shardmesh::torch_file {

/// A record that is a pickle, judged by its name or its first bytes. Storages ("archive/data/17") are not pickles.
struct archived_pickle {
  const zip_record& record;
  std::optional<std::vector<std::byte>> bytes;  // empty when the record cannot be read
  std::optional<error> problem;                 // the reason, or that the CRC-32 differs
};

/// Calls `visit` with every pickle of an archive except the record named `except`, in the directory's order. Skips
/// records whose local header contradicts the directory. A small record may inflate to a huge one. Decoding therefore
/// stops at the larger of 64 MiB and 64 times the compressed size, and at `limits.description_bytes`.
/// \errors those of `visit`
/// Cost: reads each pickle into memory.
result<void> for_each_pickle(const byte_source& archive, const zip_directory& directory, const read_limits& limits,
                             std::string_view except, function_ref<result<void>(archived_pickle)> visit);

/// Opens an archive. Compares every local header with the directory, and every pickle except the main one with its
/// CRC-32. Of the main pickle, "NAME/data.pkl" in the folder of the first record, only the size is checked: the rest
/// is checked when it is read.
/// \errors those of `zip_directory::read` and `read_record`
/// Cost: that of `zip_directory::read`, plus reading the further pickles that TorchScript archives hold.
result<zip_directory> open_archive(const byte_source& archive, read_budget& budget);

/// Returns the folder of the first record, with its slash; all records of a PyTorch archive lie in it. Empty when the
/// archive has no records.
std::string archive_prefix(const zip_directory& directory);

/// Returns the names of the files that a program's author added to its archive (`_extra_files` of torch.jit.save,
/// `extra_files` of torch.export.save), escaped for messages.
std::vector<std::string> extra_files(const zip_directory& directory);

/// Returns a warning for each reason why torch.load refuses an archive that is read here: the version of the archive is
/// missing or unknown, its alignment is no number, or a record lies outside of the archive's folder.
/// Cost: one read of each of the two records. O(records).
/// Source: PyTorchStreamReader::init and getAllRecords in caffe2/serialize/inline_container.cc of PyTorch 2.13; _load in
///         torch/serialization.py
std::vector<error> refusals_of_torch_load(const byte_source& archive, const zip_directory& directory);

}  // namespace shardmesh::torch_file
