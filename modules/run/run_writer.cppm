// SPDX-License-Identifier: Apache-2.0
// run_writer: the work of the one process that writes into the folder of a run. `checkpoint_run` uses it on rank 0, and
// so do bindings whose ranks save steps by other means.
export module shardmesh.run:run_writer;

import shardmesh.std;
import shardmesh.core;
import :checkpoint_run;
import :keep_rules;
import :prune;

export namespace shardmesh {

/// How a step is to be saved.
struct step_preparation {
  std::filesystem::path path;      // of the step's folder
  bool overwrite = false;          // as the caller asked, or because the step there is damaged
  std::filesystem::path previous;  // the step to which the new one refers; empty: the step is whole
};

/// The folder of a run, for the process that writes into it. Holds the folder's lock, records times and metrics, and
/// prunes in a thread. Saves no step itself. Move-only; calls come from one thread at a time.
class run_writer {
 public:
  /// Takes the lock of a run's folder, and creates the folder if needed. Ignores `full_flight`.
  /// \errors errc::destination_exists when another run has the folder open, naming its process and host;
  ///         errc::invalid_argument (an option), errc::unsupported (a URL), errc::io
  static result<run_writer> open(const std::filesystem::path& folder, const checkpoint_run_options& options = {});
  run_writer(run_writer&&) noexcept;
  run_writer& operator=(run_writer&&) noexcept;
  /// Waits for the prune, and releases the lock.
  ~run_writer();

  /// Decides how a step is saved, and records its time and metric. Every call that succeeds needs an `end_save`.
  /// \errors errc::invalid_argument (a negative step, or a step that is to be replaced and to which another one
  ///         refers); errc::unsupported (a format other than dcp and hf); those of `find_latest_step`
  /// Cost: waits for the prune and checks the newest step, if the run is incremental.
  result<step_preparation> begin_save(std::int64_t step, const run_save_options& saving = {});
  /// Ends a save. If the step was saved, writes Megatron's tracker file, and starts a prune by the rules of the run. If
  /// not, a step that is there gets its earlier time and metric back. Problems of all this become notes, because they
  /// do not change the step itself.
  void end_save(std::int64_t step, bool is_saved, bool durable = true);

  /// Notes that `resume` has loaded a step, after newer ones had failed to load. A newer step that passes the cheap
  /// check counts as damaged from then on, until it is saved again or loaded: a save replaces it without `overwrite`,
  /// no incremental step refers to it, and no prune counts it as good. Problems become notes.
  /// Cost: the cheap check of each newer step, and one small file if this is new.
  void note_resume(std::int64_t step);

  /// Decides which steps to delete, as `plan_prune` does, and keeps those that saves in progress need.
  result<prune_plan> plan_prune(const keep_rules& keep) const;
  /// Waits for the prune in the background, and carries out a plan as `prune_run` does.
  prune_report prune(const prune_plan& plan);

  /// Waits for the prune in the background.
  void wait();
  /// Returns the notes since the last call, each one line.
  std::vector<std::string> take_notes();

  struct state;

 private:
  explicit run_writer(std::unique_ptr<state> made);
  std::unique_ptr<state> state_;
};

}  // namespace shardmesh
