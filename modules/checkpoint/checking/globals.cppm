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
  bool dangerous = false;  // published scanners call it so; neither: unknown, such as a program's own classes
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
  std::vector<named_global> names;  // dangerous ones first, then unknown ones
  std::int64_t unnamed = 0;         // found beyond max_names
  // Archives that contradict themselves: readers may see another pickle in them. The first 100, by file and key.
  std::vector<error> problems;
  std::int64_t more_problems = 0;  // that are not among them
};

/// Reads every pickle at `path`: a DCP folder's metadata and items, the records of an archive of torch.save (any record
/// that is a pickle), an older stream, and pickles that lie beside in a folder, whatever their names. `reader` (may be
/// null: what cannot be opened can still be looked at) says where items lie.
/// Cost: two reads of 8 KiB an item, or one of at most a megabyte for small items that follow each other; the metadata
/// that `reader` has read is not read again.
global_report find_globals(const std::filesystem::path& path, checkpoint_reader* reader,
                           const global_options& options = {});

/// A line for each unknown name, with file and key: what `verify` warns of. `allowed` names have none, word for word.
/// At most 100, and one that counts the others.
std::vector<error> warnings_of(const global_report& report, const std::filesystem::path& path,
                               std::span<const std::string> allowed = {});
/// A line for each dangerous name, likewise: what `verify` refuses.
std::vector<error> dangers_of(const global_report& report, const std::filesystem::path& path,
                              std::span<const std::string> allowed = {});

/// The names that are not harmless, each once, without those that are allowed.
struct global_counts {
  std::vector<std::string> dangerous;
  std::int64_t unknown = 0;
};
global_counts count_globals(const global_report& report, std::span<const std::string> allowed = {});

}  // namespace shardmesh

namespace shardmesh {

// What is wrong with archives that no entry is read from: those in the folder beside the files that the reader opened,
// and those that lie in archives. Local headers that contradict the directory, damaged pickles, and archives in
// archives that cannot be read; the first 100, and one that counts the others. `verify` reports them, as `find_globals`
// found them; writers refuse them.
// Cost: opens those files, and reads the directory of each archive that the reader opened.
std::vector<error> damaged_archives(const checkpoint_reader& reader, const read_limits& limits = {});

}  // namespace shardmesh
