// SPDX-License-Identifier: Apache-2.0
// `load` into a state that has a local view, in place, tensors and objects. Loads into a `local_state` are in load; new
// state dicts are read in room state_checkpoint. There is no `start_load` into a state: nothing would own the view
// until the load has ended.
module;
#include <shardmesh/refuse.hpp>

export module shardmesh.collective_checkpoint:load_state;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.comm;
import shardmesh.checkpoint_core;
import shardmesh.checkpoint;
import :has_local_view;
import :load;

namespace shardmesh::detail {

/// A state's half of a load, as two calls.
struct state_to_load {
  function_ref<result<local_state>(const checkpoint_reader&)> make_part;
  function_ref<result<void>(std::span<const local_state_object>)> take_objects;
};

// Returns the question whether the checkpoint has a tensor. The reader must outlive it.
inline std::function<bool(std::string_view)> tensors_in(const checkpoint_reader& reader) {
  return [&reader](std::string_view key) { return reader.contents().find(key) != nullptr; };
}

// Open the checkpoint, make this rank's part, load it, and give the objects to the state. Every rank gets the error of
// a rank that cannot open the checkpoint or make its part. Without a communicator, this process is the only rank.
result<load_report> load_viewed(const std::filesystem::path& checkpoint, const state_to_load& state,
                                communicator_ref comm, const rank_load_options& options);
result<load_report> load_viewed(const std::filesystem::path& checkpoint, const state_to_load& state,
                                const rank_load_options& options);

// An argument of `load` that can take no values. A temporary would be destroyed with them.
template <class State>
concept no_state_to_load =
    !(std::is_lvalue_reference_v<State> &&
      (has_writable_local_view<std::remove_reference_t<State>> || std::same_as<State, local_state&>));

}  // namespace shardmesh::detail

export namespace shardmesh {

/// Loads a state on all ranks together, in place: `load` into its `local_view`, then `set_objects`. Collective; blocks.
/// The layout of the state may differ from that of the checkpoint. Every wanted tensor and object is in the state.
/// \param state  of this rank. `adapter<T>::written` is called for its tensors after they are filled.
/// \returns the report of this rank, as `load` into a `local_state`
/// \errors those of `load` into a `local_state`. If a rank cannot make its view, every rank gets that rank's error,
///         before a byte is read: also errc::unsupported for an object in a state without `set_objects`. An error of
///         `set_objects`, after everything was read, is this rank's alone. After an error the tensors hold unspecified
///         values.
/// Cost: as `load` into a `local_state`, this rank's `local_view`, and `set_objects`.
/// Source: torch.distributed.checkpoint.load
template <has_writable_local_view State>
result<load_report> load(const std::filesystem::path& checkpoint, State& state, communicator_ref comm,
                         const rank_load_options& options = {}) {
  std::optional<detail::view_of_state<State>> kept;
  const auto make = [&](const checkpoint_reader& reader) {
    return detail::part_to_load(state, comm.rank(), detail::tensors_in(reader), kept);
  };
  const auto take = [&](std::span<const local_state_object> objects) { return detail::take_objects(state, objects); };
  return detail::load_viewed(checkpoint, {make, take}, comm, options);
}

/// Loads a state that this process holds alone, in place, as rank 0 of one rank. The checkpoint has any format and
/// layout.
/// \errors as above, without a rank
/// Cost: as above; the rounds send nothing.
template <has_writable_local_view State>
result<load_report> load(const std::filesystem::path& checkpoint, State& state, const rank_load_options& options = {}) {
  std::optional<detail::view_of_state<State>> kept;
  const auto make = [&](const checkpoint_reader& reader) {
    return detail::part_to_load(state, 0, detail::tensors_in(reader), kept);
  };
  const auto take = [&](std::span<const local_state_object> objects) { return detail::take_objects(state, objects); };
  return detail::load_viewed(checkpoint, {make, take}, options);
}

/// Refuses states that cannot take the loaded values: those without a local view, const ones, and temporaries.
template <detail::no_state_to_load State>
void load(const std::filesystem::path& checkpoint, State&& state, communicator_ref comm,
          const rank_load_options& options = {}) =
    SHARDMESH_REFUSE(
        "a state to load is a variable, not const, with a local view: declare a function local_view(state) beside its "
        "type, which returns result<local_state> (docs/concepts.md)");
template <detail::no_state_to_load State>
void load(const std::filesystem::path& checkpoint, State&& state, const rank_load_options& options = {}) =
    SHARDMESH_REFUSE(
        "a state to load is a variable, not const, with a local view: declare a function local_view(state) beside its "
        "type, which returns result<local_state> (docs/concepts.md)");

}  // namespace shardmesh
