// SPDX-License-Identifier: Apache-2.0
// checkpoint_run: all ranks of a training run save its steps into one folder and resume from it. Questions about a
// folder that another process may write are in `run_step`, `latest_step`, and `prune`.
export module shardmesh.run:checkpoint_run;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.comm;
import shardmesh.checkpoint_core;
import shardmesh.checkpoint;
import shardmesh.collective_checkpoint;
import :keep_rules;
import :latest_step;
import :rank_objects;
import :run_step;
import :step_check;
import :step_names;

export namespace shardmesh {

/// The handling of a `start_save` while as many saves as allowed are running.
enum class full_flight : std::uint8_t {
  wait,  // until the oldest one has ended
  skip,  // this step is not saved
};

/// The options of a run, the same on every rank.
struct checkpoint_run_options {
  step_names names = step_names::step;
  std::int32_t in_flight = 1;  // saves that run at a time in the background
  full_flight when_full = full_flight::wait;
  bool incremental = false;  // DCP: a step refers to the newest good one for chunks that have not changed
  keep_rules keep{};         // after each save, rank 0 prunes by these rules in the background
  /// The objects of ranks, if another number of ranks resumes than has saved the step.
  resized_objects when_resized = resized_objects::refuse;
  rank_object_converter convert_objects{};  // makes them for this rank instead; on every rank, or on none
};

/// The options of one save of a run.
struct run_save_options {
  std::optional<double> metric{};  // of this step, for `keep_rules::best`; rank 0's counts, and NaN is no metric
  rank_save_options saving{};      // as for `save`; a damaged step of this number is replaced without `overwrite`
  objects_of_rank rank_objects{};  // of this rank, such as the state of its random generator
};

/// A background save that has ended.
struct ended_save {
  std::int64_t step = 0;
  result<save_report> outcome = save_report();  // the same on every rank
};

/// The answer of `checkpoint_run::start_save`.
struct started_save {
  bool is_skipped = false;        // as many saves as allowed are running: this step is not saved
  std::vector<ended_save> ended;  // earlier saves that have ended and were not returned before, in order
};

/// The step from which a run resumes.
struct resumed_run {
  std::optional<std::int64_t> step;    // nothing: the run has no step yet
  std::filesystem::path path;          // of the step
  std::vector<error> skipped;          // newer steps that are damaged or failed to load, newest first
  load_report loaded;                  // of this rank, if a state was loaded
  objects_of_rank rank_objects{};      // of this rank, if a state was loaded
  std::vector<std::string> dropped{};  // keys of the objects of ranks that `resized_objects::drop` drops
};

}  // namespace shardmesh

namespace shardmesh::detail {

// A state that the functions `save` and `start_save` take.
template <class State>
concept saved_by_run =
    has_local_view<std::remove_reference_t<State>> || std::convertible_to<State, const const_local_state&>;

using run_saver = function_ref<result<save_report>(const std::filesystem::path&, const rank_save_options&)>;
using run_starter =
    function_ref<result<save_in_progress>(const std::filesystem::path&, communicator_ref, const rank_save_options&)>;
using run_loader = function_ref<result<load_report>(const std::filesystem::path&)>;

}  // namespace shardmesh::detail

export namespace shardmesh {

/// A training run: one folder in a file system that all ranks see, with one folder for each saved step. A step appears
/// whole or not at all. One handle per rank; move-only. While it lives, rank 0 holds the lock of the folder, which the
/// system releases when the process ends. Calls with a communicator are collective; those of one rank come from one
/// thread at a time.
class checkpoint_run {
 public:
  /// Opens a run, and creates its folder if needed. Collective.
  /// \errors the same on every rank: errc::destination_exists when another run has the folder open, naming its process
  ///         and host; errc::invalid_argument (an option), errc::unsupported (a URL), errc::io, errc::disagreement, and
  ///         those of the communicator
  static result<checkpoint_run> open(const std::filesystem::path& folder, communicator_ref comm,
                                     const checkpoint_run_options& options = {});
  checkpoint_run(checkpoint_run&&) noexcept;
  checkpoint_run& operator=(checkpoint_run&&) noexcept;
  /// Waits for the saves of this rank. Call `wait` before, to learn their outcomes.
  ~checkpoint_run();

  /// Saves a step. Collective; blocks. Background saves go on meanwhile.
  /// \errors those of `save` of a state; errc::invalid_argument (a negative step, or a step that is to be replaced and
  ///         to which another one refers); errc::unsupported (a format other than dcp and hf);
  ///         errc::destination_exists when there is a good step of this number
  /// Cost: as `save`, one more round, and one small file that rank 0 writes. With `incremental`, rank 0 also checks the
  ///       newest step.
  template <detail::saved_by_run State>
  result<save_report> save(std::int64_t step, State&& state, communicator_ref comm,
                           const run_save_options& options = {}) {
    const auto saver = [&](const std::filesystem::path& to, const rank_save_options& how) {
      detail::state_with_rank_objects<std::remove_reference_t<State>> both{state, options.rank_objects, comm.size()};
      return shardmesh::save(to, both, comm, how);
    };
    return save_by(step, comm, options, saver);
  }

  /// Starts to save a step. Collective; blocks until the state is copied. Each save has a subgroup of `comm`, so `comm`
  /// must allow calls from another thread, and must outlive the save. A save that misses its deadline poisons `comm`.
  /// \errors those of `start_save` of a state, and those of `save` above. The saves that have ended are then returned
  ///         by the next call.
  /// Cost: as `start_save`, and three more rounds.
  template <detail::saved_by_run State>
  result<started_save> start_save(std::int64_t step, State&& state, communicator_ref comm,
                                  const run_save_options& options = {}) {
    const auto starter = [&](const std::filesystem::path& to, communicator_ref own, const rank_save_options& how) {
      detail::state_with_rank_objects<std::remove_reference_t<State>> both{state, options.rank_objects, own.size()};
      return shardmesh::start_save(to, both, own, how);
    };
    return start_by(step, comm, options, starter);
  }

  /// Waits for the background saves of this rank, and on rank 0 for the prune.
  /// \returns the saves that were not returned before, in order
  std::vector<ended_save> wait();

  /// Finds the newest good step. Collective. Rank 0 decides by the cheap check, and every rank gets its answer.
  /// \errors the same on every rank: the problems of all steps when there are steps and none is good; those of
  ///         `find_latest_step` and of the communicator
  result<resumed_run> resume(communicator_ref comm);

  /// Loads the newest good step into a state, in place. Collective; blocks. The layout and the number of ranks may
  /// differ from those of the save. If a step turns out to be damaged, the one before is loaded. The objects of ranks
  /// are in the result; the options of the run say what happens to them if another number of ranks saved the step.
  /// \returns without a step when the run has none: the state is as it was
  /// \errors the same on every rank: those of `resume` above; those of `load` that are not damage to the step, such as
  ///         errc::missing_key or errc::shape_mismatch; errc::invalid_argument for objects of another number of ranks,
  ///         before the state changes. After another error the tensors hold unspecified values.
  template <has_writable_local_view State>
  result<resumed_run> resume(State& state, communicator_ref comm, const rank_load_options& options = {}) {
    const auto loader = [&](const std::filesystem::path& from) { return shardmesh::load(from, state, comm, options); };
    return resume_by(comm, options, loader);
  }

  /// Lists the steps, ascending, as `list_steps` does.
  result<std::vector<run_step>> steps() const;
  /// Finds the newest good step, as `find_latest_step` does. Not collective.
  result<latest_step> latest(const step_check_options& check = {}) const;
  /// Returns the notes since the last call, on rank 0: replaced steps, and problems of the prune, of the record of
  /// metrics, and of Megatron's tracker file. Each is one line.
  std::vector<std::string> take_notes();

  struct state;

 private:
  explicit checkpoint_run(std::unique_ptr<state> made);
  result<save_report> save_by(std::int64_t step, communicator_ref comm, const run_save_options& options,
                              detail::run_saver saver);
  result<started_save> start_by(std::int64_t step, communicator_ref comm, const run_save_options& options,
                                detail::run_starter starter);
  result<resumed_run> resume_by(communicator_ref comm, const rank_load_options& options, detail::run_loader loader);

  std::unique_ptr<state> state_;
};

}  // namespace shardmesh
