// SPDX-License-Identifier: Apache-2.0
// `save` and `start_save` of a state that has a local view: a state dict, an FSDP model, or a type of the user. Saves
// of a `local_state` are in save; the opposite direction is in load_state.
module;
#include <shardmesh/refuse.hpp>

export module shardmesh.collective_checkpoint:save_state;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.comm;
import shardmesh.checkpoint_core;
import shardmesh.checkpoint;
import :has_local_view;
import :save;

namespace shardmesh::detail {

using part_maker = function_ref<result<const_local_state>()>;

// Make this rank's part and save it. Every rank gets the error of a rank that cannot make its part. Without a
// communicator, this process is the only rank.
result<save_report> save_viewed(const std::filesystem::path& destination, part_maker make, communicator_ref comm,
                                const rank_save_options& options);
result<save_report> save_viewed(const std::filesystem::path& destination, part_maker make,
                                const rank_save_options& options);
result<save_in_progress> start_save_viewed(const std::filesystem::path& destination, part_maker make,
                                           communicator_ref comm, const rank_save_options& options);

template <class State>
using view_to_keep = std::optional<view_of_state<std::remove_reference_t<State>>>;

// An argument of `save` that is neither a state nor the parts of one, which other overloads of `save` take.
template <class State>
concept no_state_to_save =
    !has_local_view<std::remove_reference_t<State>> && !std::convertible_to<State, const const_local_state&> &&
    !std::convertible_to<State, std::span<const save_tensor>>;

}  // namespace shardmesh::detail

export namespace shardmesh {

/// Saves a state on all ranks together: `save` of its `local_view`. Collective; blocks. A temporary state is fine: it
/// lives until the call returns.
/// \param state  of this rank. Its memory should not change until the call returns.
/// \errors those of `save` of a `local_state`. If a rank cannot make its view, every rank gets that rank's error, with
///         the rank, before a file exists.
/// Cost: as `save` of a `local_state`, and this rank's `local_view`.
/// Source: torch.distributed.checkpoint.save
template <class State>
  requires has_local_view<std::remove_reference_t<State>>
result<save_report> save(const std::filesystem::path& destination, State&& state, communicator_ref comm,
                         const rank_save_options& options = {}) {
  detail::view_to_keep<State> kept;
  return detail::save_viewed(
      destination, [&] { return detail::part_to_save(state, comm.rank(), kept); }, comm, options);
}

/// Saves a state that this process holds alone, as rank 0 of one rank. `options.format` decides the format. Unlike
/// several ranks, one process also writes a .pt file, a folder of torch_checkpointing, a GGUF file, and an .npz
/// archive, without calls of `options.before`.
/// \errors as above, without a rank
/// Cost: as above; the rounds send nothing.
template <class State>
  requires has_local_view<std::remove_reference_t<State>>
result<save_report> save(const std::filesystem::path& destination, State&& state,
                         const rank_save_options& options = {}) {
  detail::view_to_keep<State> kept;
  return detail::save_viewed(destination, [&] { return detail::part_to_save(state, 0, kept); }, options);
}

/// Starts a `save` of a state in a thread of each rank. Collective; blocks until the data that this rank writes is
/// copied. After that the state may change or end: the save refers neither to it nor to its view.
/// \param comm  belongs to the save until `wait` has returned on this rank, as for `start_save` of a `local_state`
/// \errors those of `start_save` of a `local_state`, and those of the view, as above
/// Source: torch.distributed.checkpoint.async_save
template <class State>
  requires has_local_view<std::remove_reference_t<State>>
result<save_in_progress> start_save(const std::filesystem::path& destination, State&& state, communicator_ref comm,
                                    const rank_save_options& options = {}) {
  detail::view_to_keep<State> kept;
  return detail::start_save_viewed(
      destination, [&] { return detail::part_to_save(state, comm.rank(), kept); }, comm, options);
}

/// Refuses states without a local view.
template <detail::no_state_to_save State>
void save(const std::filesystem::path& destination, State&& state, communicator_ref comm,
          const rank_save_options& options = {}) =
    SHARDMESH_REFUSE(
        "a state to save has a local view: declare a function local_view(state) beside its type, which returns "
        "result<local_state> (docs/concepts.md)");
template <detail::no_state_to_save State>
void save(const std::filesystem::path& destination, State&& state, const rank_save_options& options = {}) =
    SHARDMESH_REFUSE(
        "a state to save has a local view: declare a function local_view(state) beside its type, which returns "
        "result<local_state> (docs/concepts.md)");
template <detail::no_state_to_save State>
void start_save(const std::filesystem::path& destination, State&& state, communicator_ref comm,
                const rank_save_options& options = {}) =
    SHARDMESH_REFUSE(
        "a state to save has a local view: declare a function local_view(state) beside its type, which returns "
        "result<local_state> (docs/concepts.md)");

}  // namespace shardmesh
