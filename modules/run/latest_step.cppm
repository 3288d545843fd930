// SPDX-License-Identifier: Apache-2.0
// latest_step: the newest good step of a run.
export module shardmesh.run:latest_step;

import shardmesh.std;
import shardmesh.core;
import :run_step;
import :step_check;
import :step_names;

export namespace shardmesh {

/// The newest good step, and why newer ones were skipped.
struct latest_step {
  std::optional<run_step> step;  // nothing: no step is good; without metric, which only `list_steps` reads
  std::vector<error> skipped;    // one for each newer step, newest first; each names the step's folder
};

/// Finds the newest step that passes the check. Checks each newer step once, and no older one. A step that a resume has
/// found damaged (`run_step::is_damaged`) counts as damaged, unless a deep check finds it good.
/// \param below  considers only steps with smaller numbers
/// \errors those of `list_steps` for the folder; errc::cancelled, errc::deadline_exceeded. A step that fails the check
///         is skipped.
/// Cost: lists the folder, and checks steps from the newest until one is good.
result<latest_step> find_latest_step(const std::filesystem::path& run, step_names names = step_names::step,
                                     const step_check_options& check = {},
                                     std::optional<std::int64_t> below = std::nullopt);

}  // namespace shardmesh

export namespace shardmesh::detail {

// As `find_latest_step`, for a resume: tries steps that an earlier one has found damaged, too. Their files may have
// been restored.
// \param failed  a step that could not be loaded: older ones are tried. If it is gone, the process that writes the run
//                has pruned it during the load, and all steps are tried.
result<latest_step> find_step_to_resume(const std::filesystem::path& run, step_names names,
                                        const step_check_options& check, std::optional<std::int64_t> failed);

}  // namespace shardmesh::detail

namespace shardmesh::detail {

// Returns the problem of a step that passes the cheap check, which does not find flipped bits, and that a resume has
// found damaged.
error found_by_resume(const std::filesystem::path& step);

}  // namespace shardmesh::detail
