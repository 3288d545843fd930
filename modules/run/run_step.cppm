// SPDX-License-Identifier: Apache-2.0
// run_step: the steps of a run's folder, as facts. `step_check` decides which steps are good, and `keep_rules` which
// are kept.
export module shardmesh.run:run_step;

import shardmesh.std;
import shardmesh.core;
import :step_names;

export namespace shardmesh {

/// One step of a run: a folder with a checkpoint. It may be damaged.
struct run_step {
  std::int64_t step = 0;
  std::filesystem::path path;
  std::chrono::system_clock::time_point saved{};  // recorded by the save; else the time of the folder's last change
  std::optional<double> metric{};                 // of the save
  bool is_pinned = false;                         // has a marker: it is never pruned
  bool is_damaged = false;                        // a resume found so, and the step was not saved again
};

/// Returns the steps of a run, ascending. Steps that are being written, and leftovers, have other names and are not
/// among them. A symbolic link to a folder is also a step.
/// \errors errc::io when the folder cannot be listed; errc::bad_format when the record of metrics is damaged
/// Cost: lists the folder, and one stat per step.
result<std::vector<run_step>> list_steps(const std::filesystem::path& run, step_names names = step_names::step);

/// Returns the size of a step's own files in bytes, without those of other steps to which it refers.
std::int64_t stored_bytes_of_step(const std::filesystem::path& step);

/// Pins a step: `prune_run` keeps it until `unpin_step`. The marker is the empty file ".FOLDER.pinned" beside the
/// step's folder (".step-100.pinned"), which any program may create.
/// \errors errc::invalid_argument when there is no such step; errc::io
result<void> pin_step(const std::filesystem::path& run, std::int64_t step, step_names names = step_names::step);
result<void> unpin_step(const std::filesystem::path& run, std::int64_t step, step_names names = step_names::step);

}  // namespace shardmesh

namespace shardmesh {

// Returns the steps with their names, times, and pins only: it reads no record.
result<std::vector<run_step>> find_steps(const std::filesystem::path& run, step_names names);
// Returns whether the step has the marker.
bool has_pin(const std::filesystem::path& run, std::int64_t step, step_names names);

}  // namespace shardmesh
