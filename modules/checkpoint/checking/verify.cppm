// SPDX-License-Identifier: Apache-2.0
// verify: is everything that a checkpoint says it holds there, readable, consistent and unchanged?
export module shardmesh.checkpoint:verify;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.catalog;
import :globals;

export namespace shardmesh {

/// How thoroughly `verify` looks at a checkpoint, and how many problems it names. By default it reads every byte.
struct verify_options {
  bool quick = false;               // opens every item, but reads no tensor bytes: no checksums
  int threads = 0;                  // 0: all cores
  std::size_t max_problems = 1000;  // named; the others are counted
  read_limits limits = {};          // of the pickles that are searched for globals
  /// Names of pickles that are accepted, as `find_globals` spells them: neither problems nor warnings.
  std::vector<std::string> allowed_globals = {};
};

/// `problems`: at most `max_problems`, in the order of the catalog.
struct verify_report : problem_report {
  std::vector<error> warnings;
  global_report globals;  // of the checkpoint's pickles; dangerous names are problems, too, unknown ones are warnings
  std::int64_t chunks = 0, objects = 0, bytes = 0;
  std::int64_t checked_bytes = 0;      // covered by a checksum that was compared
  std::int64_t unchecked_chunks = 0;   // that hold bytes and have no checksum; not known when `quick`
  std::int64_t unchecked_objects = 0;  // likewise
  std::int64_t unread_tensors = 0;     // that the checkpoint holds and no entry names: not checked, nor converted
};

/// Opens every chunk and object; checks declared dtype, sizes and storage against what is stored, that chunks tile
/// their tensor without overlap or gap (naming rows), that items do not share bytes, and every checksum there is: of
/// tensors, of every record of an object or of an opaque tensor, of storages inside objects, of the folder's record.
/// Names in pickles that published scanners call dangerous are problems, before all others.
/// What else it refuses, `convert` and `reshard` refuse: they make the same checks of what they copy. A checkpoint that
/// has tensors, none of which is read, is a warning (errc::unsupported).
/// Cost: reads every byte once (those of a folder with a checksum record twice), unless `quick`.
verify_report verify(checkpoint_reader& reader, const verify_options& options = {});

/// The report of a checkpoint that cannot be opened: `why`, and what its pickles name, as Python runs a damaged pickle
/// up to its defect. Its first problem is `why`.
verify_report verify_unreadable(const std::filesystem::path& path, error why, const verify_options& options = {});

}  // namespace shardmesh
