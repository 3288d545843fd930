// SPDX-License-Identifier: Apache-2.0
// Not exported: searches bytes for pickles by their content, not by their names, through archives in archives. The
// findings go to a global_collector. pickle_globals and item_scan choose the files and items to search.
module shardmesh.checkpoint:pickle_scan;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import shardmesh.storage;
import :global_collector;

namespace shardmesh {

/// The place of some bytes, for messages about the names found in them, and facts that are known about them.
struct scanned_place {
  const std::string& file;                    // with the records of archives around the bytes: "m.pt!m/x.pkl"
  const std::string& key;                     // of the item; empty elsewhere
  bool is_item = false;                       // the bytes of a tensor or object
  int depth = 0;                              // number of archives around the bytes
  bool is_of_script = false;                  // a record of TorchScript
  const pickle::used_names* known = nullptr;  // the names in the stream, if they were found before
};

/// Searches bytes of any kind.
void scan_bytes(const byte_source& whole, const scanned_place& place, global_collector& into);

/// Searches an archive. Where local headers and the directory differ, two readers may see different bytes, so the
/// archive is a problem. Records on which both agree are searched. The source is read in small pieces.
/// \errors those of `zip_directory::read` and of `torch_file::for_each_pickle`
result<void> scan_archive(const byte_source& source, const scanned_place& place, global_collector& into);

/// Searches the archives that lie in an archive. Of other records, no more than the first bytes are read.
void scan_inner_archives(const byte_source& source, const std::string& name, global_collector& into);

/// Searches the members of a .nemo file, except files of DCP's items. Returns false when it is not one, and nothing was
/// searched.
bool scan_nemo(const std::filesystem::path& path, const std::string& name, global_collector& into);

/// Returns whether a file of this name is read as a checkpoint: damage there is a problem, and not a sign of another
/// kind of file.
bool is_checkpoint_name(std::string_view name);

}  // namespace shardmesh
