// SPDX-License-Identifier: Apache-2.0
// globals: the functions and classes that the pickles of a checkpoint name, found without loading anything: a safe way
// to look at a download. Not here: one pickle (pickle's names).
export module shardmesh.checkpoint:globals;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.catalog;

export namespace shardmesh {

/// A name and where it stands. Harmless names are listed once, others once for each file and key.
struct named_global {
  std::string file;  // relative to the checkpoint's folder; a record other than data.pkl follows "!": "m.pt!m/x.pkl"
  std::string key;   // of the tensor or object whose item it is in; empty elsewhere
  std::string name;
  bool harmless = false;
  std::int64_t count = 0;
  friend bool operator==(const named_global&, const named_global&) = default;
};

/// How `find_globals` looks through a checkpoint's pickles, and how many names it keeps.
struct global_options {
  int threads = 0;               // 0: all cores
  std::size_t max_names = 1000;  // further ones are counted
  read_limits limits = {};
};

/// What `find_globals` found: the functions and classes that the pickles of a checkpoint name. None of them was called.
struct global_report {
  std::vector<named_global> names;  // those that are not harmless first
  std::int64_t unnamed = 0;         // found beyond max_names
  std::vector<error> problems;      // archives that contradict themselves: readers may see another pickle in them
};

/// Reads every pickle at `path`: a DCP folder's metadata and items, the records of an archive of torch.save (any record
/// that is a pickle), an older stream, and pickles that lie beside in a folder, whatever their names. `reader` (may be
/// null: what cannot be opened can still be looked at) says where items lie.
/// Cost: two small reads an item; no tensor data is read.
global_report find_globals(const std::filesystem::path& path, checkpoint_reader* reader,
                           const global_options& options = {});

/// A line for each name that is not harmless, with file and key: what `verify` warns of. At most `max_lines`.
std::vector<error> warnings_of(const global_report& report, const std::filesystem::path& path,
                               std::size_t max_lines = 100);

}  // namespace shardmesh
