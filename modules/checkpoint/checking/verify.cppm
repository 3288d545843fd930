// SPDX-License-Identifier: Apache-2.0
// verify: checks that everything that a checkpoint claims to hold is there, readable, consistent, and unchanged.
export module shardmesh.checkpoint:verify;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.checkpoint_core;
import :pickle_globals;

export namespace shardmesh {

/// How thoroughly `verify` checks a checkpoint, and how many problems it names. By default, it reads every byte.
struct verify_options {
  bool quick = false;               // open every item, but read no tensor bytes and compare no checksums
  int threads = 0;                  // 0: all cores
  std::size_t max_problems = 1000;  // named; the others are counted
  read_limits limits = {};          // for the pickles that are searched for globals
  /// Names in pickles that are accepted, as `find_globals` spells them: they are neither problems nor warnings.
  std::vector<std::string> allow_globals = {};
  time_limit within = {};       // a duration or a time point (errc::deadline_exceeded)
  std::stop_token cancel = {};  // errc::cancelled

  /// Returns the limits of the call.
  call_options call() const { return {.within = within, .cancel = cancel}; }
};

/// The findings of `verify`. The problems are facts about the checkpoint: a check that finds some has succeeded.
struct verify_report {
  std::vector<error> problems;     // dangerous names, then at most `max_problems` others, in the catalog's order
  std::int64_t more_problems = 0;  // number of problems beyond those listed
  std::vector<error> warnings;
  global_report globals;  // of the checkpoint's pickles; dangerous names are also problems, and unknown ones warnings
  std::int64_t chunks = 0, objects = 0, bytes = 0;  // with the replicas of ranks that saved without collectives
  std::int64_t checked_bytes = 0;                   // covered by a checksum that was compared
  std::int64_t unchecked_chunks = 0;                // chunks with bytes but without a checksum; unknown if `quick`
  std::int64_t unchecked_objects = 0;               // objects with bytes but without a checksum; unknown if `quick`
  std::int64_t unread_tensors = 0;  // tensors in the checkpoint that no entry names: neither checked nor converted

  /// Returns whether the check found no problem.
  bool ok() const { return problems.empty(); }
};

/// Opens every chunk and object. Checks that declared dtypes, sizes, and storages match the stored ones, that chunks
/// tile their tensor without overlap or gap (naming rows), and that items share no bytes. Compares every checksum: of
/// tensors, of every record of an object or of an opaque tensor, of storages inside objects, and of the folder's
/// record. Names in pickles that published scanners call dangerous are problems, before all others. `convert` and
/// `reshard` refuse everything else that `verify` refuses, because they run the same checks on the entries that they
/// copy. A checkpoint that has tensors, but no entry for any of them, gets a warning (errc::unsupported).
/// \errors if the check cannot be completed: errc::no_memory (no memory for the check itself), errc::cancelled,
///         errc::deadline_exceeded. Problems of the checkpoint are in the report.
/// Cost: reads every byte once (twice in a folder with a record of checksums), unless `quick`.
result<verify_report> verify(checkpoint_reader& reader, const verify_options& options = {});

/// Reports on a checkpoint that cannot be opened. The first problem is `why`. Names in its pickles are reported as
/// well, because Python runs a damaged pickle up to its defect.
/// \errors those of `verify`
result<verify_report> verify_unreadable(const std::filesystem::path& path, error why,
                                        const verify_options& options = {});

}  // namespace shardmesh
