// SPDX-License-Identifier: Apache-2.0
// flatten: makes a step independent of the other steps to which it refers. Saves that refer to other steps are in
// `checkpoint_run`.
export module shardmesh.run:flatten;

import shardmesh.std;
import shardmesh.core;
import :step_names;

export namespace shardmesh {

/// The facts of a step that `flatten_step` has flattened.
struct flatten_report {
  std::vector<std::string> references;  // names of the folders that the step needed and needs no longer; ascending
  std::int64_t copied_bytes = 0;        // of their items
  std::vector<std::string> notes;       // for the user: leftovers that were found
};

/// Copies the items of other steps to which a step refers into the step's own folder. A step that refers to none stays
/// as it is. The new folder is written beside the old one, verified, compared with it, and then exchanged with it in
/// one step. The step's own files keep their contents, so that other steps may still refer to them.
/// \param threads  of the comparison; 0: all cores
/// \errors errc::invalid_argument when there is no such step; errc::destination_exists when a `checkpoint_run` has the
///         folder open, or when the step's folder has a file that its record of checksums does not name;
///         errc::checksum_mismatch for bytes that have changed since they were saved; errc::bad_format (no record);
///         errc::unsupported for items that are compressed, for Megatron's common.pt, and for a step that is a symbolic
///         link; errc::io, errc::no_space. After an error the step is as it was.
/// Cost: copies the whole step; then reads the copy three times and the step once.
result<flatten_report> flatten_step(const std::filesystem::path& run, std::int64_t step,
                                    step_names names = step_names::step, int threads = 0);

}  // namespace shardmesh
