// SPDX-License-Identifier: Apache-2.0
// checked_archive: the one way to open an archive of PyTorch (torch.save, torch.jit.save, torch.export.save): whatever
// contradicts itself, and pickles that are damaged, are refused here, so that no reader, and no writer behind it,
// accepts what `verify` refuses. Not here: what the records mean (item, exported_program), what pickles name (globals).
export module shardmesh.torch_file:checked_archive;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;

export namespace shardmesh::torch_file {

/// A record that is a pickle, by its name or by how it begins; storages ("archive/data/17") are none.
struct archived_pickle {
  const zip_record& record;
  std::optional<std::vector<std::byte>> bytes;  // nothing: it cannot be read
  std::optional<error> problem;                 // why not, or that its CRC-32 differs
};

/// Calls `visit` with every pickle of an archive, in the order of the directory, but the record of the name `except`.
/// Records whose local header contradicts the directory are passed over. A small record may inflate to a large one:
/// what is plausible for the whole file is the most that is decoded.
/// \errors those of `visit`. Cost: reads the pickles, each into memory.
result<void> for_each_pickle(const byte_source& archive, const zip_directory& directory, const read_limits& limits,
                             std::string_view except, function_ref<result<void>(archived_pickle)> visit);

/// Opens an archive: the directory, every local header held against it, and every pickle but the main one against its
/// CRC-32 (that one, "NAME/data.pkl" in the folder of the first record, is checked when it is read).
/// \errors those of `zip_directory::read` and `read_record`. Cost: those of `zip_directory::read`; archives of
///   TorchScript hold further pickles, which are read.
result<zip_directory> open_archive(const byte_source& archive, read_budget& budget);

/// The folder that all records of an archive of PyTorch lie in, with its slash: of the first record; empty where there
/// is none.
std::string archive_prefix(const zip_directory& directory);

}  // namespace shardmesh::torch_file
