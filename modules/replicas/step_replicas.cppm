// SPDX-License-Identifier: Apache-2.0
// step_replicas: the last step of a training run in the memory of several failure domains. Steps in files are in room
// run.
export module shardmesh.replicas:step_replicas;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.comm;
import shardmesh.checkpoint;
import shardmesh.collective_checkpoint;
import shardmesh.run;
import :replicas_options;

namespace shardmesh::detail {

using replica_maker = function_ref<result<const_local_state>()>;

/// A state's half of a resume, as two calls.
struct replica_target {
  function_ref<result<local_state>(const std::function<bool(std::string_view)>&)> make_part;
  function_ref<result<void>(std::span<const local_state_object>)> take_objects;
};

}  // namespace shardmesh::detail

export namespace shardmesh {

/// One rank's part of the last step, and copies of the parts of ranks in other failure domains. One handle per rank;
/// move-only; its calls come from one thread at a time.
///
/// The memory belongs to no communicator. After ranks are lost, the others and their replacements make a new
/// communicator, on which each passes its own `step_replicas`; that of a replacement is empty. The number of ranks may
/// differ from before.
class step_replicas {
 public:
  /// Makes an empty object. Not collective.
  /// \errors errc::invalid_argument (fewer than one copy, or a negative bound)
  static result<step_replicas> make(const replicas_options& options = {});
  step_replicas(step_replicas&&) noexcept;
  step_replicas& operator=(step_replicas&&) noexcept;
  /// Waits for the copy in the background. Call `wait` before, to learn its outcome.
  ~step_replicas();

  /// Keeps a step in place of the one before. Collective; blocks. Each box lies in `copies` failure domains afterwards:
  /// first those of ranks that train with it, then the next ones. The step before stays until every rank has the new
  /// one, so that after a loss at any moment one of the two is there.
  /// \param state  of this rank. It may change after the call.
  /// \returns counts of this rank
  /// \errors the same on every rank: errc::invalid_argument (a negative step; fewer failure domains than copies),
  ///         errc::no_memory (a rank's bound, naming the rank and the bytes), errc::gap and errc::overlap naming key
  ///         and boxes, errc::shape_mismatch, errc::dtype_mismatch, errc::duplicate_key, errc::disagreement (the
  ///         options, the step, or an object differs between ranks), errc::checksum_mismatch (a copy was damaged on its
  ///         way); those of the view and of the communicator. The step before is then still kept.
  /// Cost: four rounds of all_gather: the descriptions, 16 bytes per box, the plan of the transfer, and the outcome. A
  ///       rank sends each of its boxes at most `copies` - 1 times, and every kept byte is hashed once. Memory: the
  ///       step before and the new one, and as much for messages as `plan_options::memory_bytes` is by default.
  template <class State>
    requires has_local_view<std::remove_reference_t<State>>
  result<keep_report> keep(std::int64_t step, State&& state, communicator_ref comm, const keep_options& options = {}) {
    std::optional<detail::view_of_state<std::remove_reference_t<State>>> kept;
    return keep_by(step, [&] { return detail::part_to_save(state, comm.rank(), kept); }, comm, options);
  }

  /// Starts to keep a step. Collective; blocks until this rank's boxes are copied. A thread of each rank sends them, on
  /// a subgroup of `comm`, so `comm` must allow calls from another thread, and must live until the next call of this
  /// object, such as `wait`. The call first waits for the copy before.
  /// \returns the report of the copy before, if there is one that was not returned
  /// \errors those of `keep` that are found before a byte is sent; the error of the copy before, after which nothing is
  ///         started
  /// Cost: as `keep`, and two more rounds.
  template <class State>
    requires has_local_view<std::remove_reference_t<State>>
  result<std::optional<keep_report>> start_keep(std::int64_t step, State&& state, communicator_ref comm,
                                                const keep_options& options = {}) {
    std::optional<detail::view_of_state<std::remove_reference_t<State>>> kept;
    return start_by(step, [&] { return detail::part_to_save(state, comm.rank(), kept); }, comm, options);
  }

  /// Waits for the copy in the background.
  /// \returns its report or its error, once; nothing if there is none
  result<std::optional<keep_report>> wait();

  /// Lists the steps that the ranks of `comm` hold together, the last one first. Collective; blocks. Every copy is
  /// compared with its digest.
  /// \returns the same on every rank
  /// \errors those of the communicator; errc::communication (a malformed note, naming the rank)
  /// Cost: each rank reads its copies; two rounds.
  result<std::vector<available_step>> available(communicator_ref comm, const call_options& call = {});

  /// Loads the last step of which every box is left, in place, without reading a file. Collective; blocks. Layout and
  /// number of ranks may differ from those of `keep`. Copies are compared with their digests first; a damaged copy
  /// counts as lost. The memory keeps the step, with the copies that are left, until the next `keep`.
  /// \param options  as for `load` of a state. `threads`, `check`, `reading`, and `sharing` do not apply to memory.
  /// \errors the same on every rank: errc::gap (every step lacks boxes, each named with its key; or no rank holds a
  ///         step), before anything is written; errc::missing_key, errc::shape_mismatch, errc::dtype_mismatch,
  ///         errc::narrowing, and errc::overlap, also before anything is written; errc::disagreement for tied weights
  ///         whose values differ; those of the view and of the communicator. An error of `set_objects` is this rank's
  ///         alone, and its errc::gap becomes errc::invalid_argument. After an error of the communicator the tensors
  ///         hold unspecified values.
  /// Cost: each rank reads its copies; six rounds; each wanted byte that a rank does not hold is sent once.
  template <has_writable_local_view State>
  result<resumed_step> resume(State& state, communicator_ref comm, const rank_load_options& options = {}) {
    std::optional<detail::view_of_state<State>> kept;
    const auto make = [&](const std::function<bool(std::string_view)>& has) {
      return detail::part_to_load(state, comm.rank(), has, kept);
    };
    const auto take = [&](std::span<const local_state_object> objects) { return detail::take_objects(state, objects); };
    return resume_by({make, take}, comm, options);
  }

  /// Does the same, and falls back to the newest good step of `run` when boxes of every step in memory are lost.
  /// `resumed_step::skipped` then names them.
  /// \errors as above, without errc::gap of the memory; those of `checkpoint_run::resume`
  template <has_writable_local_view State>
  result<resumed_step> resume(State& state, communicator_ref comm, checkpoint_run& run,
                              const rank_load_options& options = {}) {
    auto from_memory = resume(state, comm, options);
    if (from_memory || from_memory.error().code != errc::gap) return from_memory;
    auto stored = run.resume(state, comm, options);
    if (!stored) return std::move(stored).error();
    resumed_step made;
    made.step = stored->step;
    made.loaded = std::move(stored->loaded);
    made.rank_objects = std::move(stored->rank_objects);
    made.dropped = std::move(stored->dropped);
    made.skipped = from_memory.error().problems();
    for (error& skipped : stored->skipped) made.skipped.push_back(std::move(skipped));
    return made;
  }

  /// Lists the boxes that this rank keeps, of every step that it holds. Waits for the copy in the background. In a
  /// child that was forked during that copy, the list is empty.
  std::vector<kept_copy> copies() const;
  /// Returns the bytes of elements that `copies` lists. Waits for the copy in the background.
  std::int64_t kept_bytes() const;

  struct state;

 private:
  explicit step_replicas(std::unique_ptr<state> made);
  result<keep_report> keep_by(std::int64_t step, detail::replica_maker make, communicator_ref comm,
                              const keep_options& options);
  result<std::optional<keep_report>> start_by(std::int64_t step, detail::replica_maker make, communicator_ref comm,
                                              const keep_options& options);
  result<resumed_step> resume_by(const detail::replica_target& target, communicator_ref comm,
                                 const rank_load_options& options);

  std::unique_ptr<state> state_;
};

}  // namespace shardmesh
