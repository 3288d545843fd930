// SPDX-License-Identifier: Apache-2.0
// pickle_globals: finds the functions and classes that the pickles of a checkpoint name, without loading anything. A
// safe way to inspect a download. Parsing one pickle is in room pickle (names).
export module shardmesh.checkpoint:pickle_globals;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.checkpoint_core;

export namespace shardmesh {

/// A name, and where it was found. Harmless names are listed once, others once for each file and key.
struct named_global {
  std::string file;  // relative to the checkpoint's folder; "!" precedes a record other than data.pkl: "m.pt!m/x.pkl"
  std::string key;   // of the tensor or object in whose item it is; empty elsewhere
  std::string name;
  bool harmless = false;
  std::int64_t count = 0;
  bool dangerous = false;  // published scanners say so; neither flag: unknown, such as a program's own classes
  friend bool operator==(const named_global&, const named_global&) = default;
};

/// How `find_globals` searches the pickles of a checkpoint, and how many names it keeps.
struct global_options {
  int threads = 0;               // 0: all cores
  std::size_t max_names = 1000;  // further ones are only counted; dangerous ones beyond twice this number
  read_limits limits = {};
};

/// The result of `find_globals`: the functions and classes that the pickles of a checkpoint name. None of them was
/// called.
struct global_report {
  std::vector<named_global> names;  // dangerous ones first, then unknown ones
  std::int64_t unnamed = 0;         // number of names that were only counted
  // Archives that contradict themselves, in which other readers may see another pickle, and files that could not be
  // read. The first 100, by file and key.
  std::vector<error> problems;
  std::int64_t more_problems = 0;  // number of problems beyond these
  // Items that torch.load refuses, although they are read here. The first 100, by file and key.
  std::vector<error> warnings;
  std::int64_t more_warnings = 0;  // number of warnings beyond these
};

/// Reads every pickle at `path`: a DCP folder's metadata and items, the records of a torch.save archive (any record
/// that is a pickle), an older torch.save stream, and other pickles in a folder, whatever their names. `reader` locates
/// the items. It may be null, because a checkpoint that cannot be opened can still be searched.
/// Cost: two reads of 8 KiB per item, or one of at most a megabyte for small items that follow each other. Metadata
/// that `reader` has read is not read again.
global_report find_globals(const std::filesystem::path& path, checkpoint_reader* reader,
                           const global_options& options = {});

/// Returns the warnings of `verify`: those of the report, and a line for each unknown name, with file and key. Names in
/// `allowed`, compared literally, are left out. At most 100 lines, and one that counts the others.
std::vector<error> warnings_of(const global_report& report, const std::filesystem::path& path,
                               std::span<const std::string> allowed = {});
/// Returns the refusals of `verify` in the same form: a line for each dangerous name.
std::vector<error> dangers_of(const global_report& report, const std::filesystem::path& path,
                              std::span<const std::string> allowed = {});

/// The names that are neither harmless nor allowed, each once.
struct global_counts {
  std::vector<std::string> dangerous;
  std::int64_t unknown = 0;
};
global_counts count_globals(const global_report& report, std::span<const std::string> allowed = {});

}  // namespace shardmesh
