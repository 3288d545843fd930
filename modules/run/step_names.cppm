// SPDX-License-Identifier: Apache-2.0
// step_names: how the folders of a run's steps are named. The steps of one folder are listed in `run_step`.
export module shardmesh.run:step_names;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// A naming convention of step folders.
enum class step_names : std::uint8_t {
  step,        // "step-100": torchtitan
  checkpoint,  // "checkpoint-100": the trainer of Hugging Face
  iteration,   // "iter_0000100", and the file "latest_checkpointed_iteration.txt" with the last saved step: Megatron
};

/// Returns the name of a convention: "step", "checkpoint", or "iter".
std::string_view name(step_names names);
/// Parses the name of a convention.
std::optional<step_names> step_names_of(std::string_view text);

/// Returns the name of a step's folder. Precondition: step >= 0.
std::string folder_name(std::int64_t step, step_names names);
/// Parses the name of a step's folder. Returns nothing for every other name, also for one that `folder_name` does not
/// make, such as "step-0100": no two folders are the same step.
std::optional<std::int64_t> step_of_folder(std::string_view folder, step_names names);

/// Returns the convention that the folders of a run follow; `step_names::step` when the folder has no step.
/// \errors errc::invalid_argument when the folder has steps of two conventions, naming one folder of each; errc::io
result<step_names> find_step_names(const std::filesystem::path& run);

/// Checks that a run without steps of this convention has none of another one either. `checkpoint_run::resume` calls
/// it, so that a training does not start over because of the names.
/// \errors errc::invalid_argument naming a step and its convention, or two conventions; errc::io
result<void> check_first_step(const std::filesystem::path& run, step_names names);

/// The name of Megatron's tracker file. It holds the number of the step that was saved last.
inline constexpr std::string_view tracker_file_name = "latest_checkpointed_iteration.txt";

}  // namespace shardmesh
