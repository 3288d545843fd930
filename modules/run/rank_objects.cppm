// SPDX-License-Identifier: Apache-2.0
// rank_objects: values that belong to one rank, such as the state of a random generator or the position of a data
// loader. A step holds those of all ranks. Objects that are the same on every rank are part of the state.
export module shardmesh.run:rank_objects;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.collective_checkpoint;

export namespace shardmesh {

/// The objects of one rank, by name, such as "rng" and "data_loader". A step stores them under the keys
/// "rank_objects.NAME.RANK". A container that Python saved is an `opaque_object`, which can be saved again.
using objects_of_rank = std::map<std::string, plain_value>;

/// The treatment of the objects of ranks in `resume`, if another number of ranks saved the step.
enum class resized_objects : std::uint8_t {
  refuse,  // the step is not loaded
  drop,    // no rank gets objects, and a note names them
};

/// Makes the objects of one rank from those of all ranks that saved the step, in their order.
using rank_object_converter = std::function<result<objects_of_rank>(std::span<const objects_of_rank> saved,
                                                                    std::int32_t rank, std::int32_t ranks)>;

}  // namespace shardmesh

// Exported because argument-dependent look-up has to find `local_view`; not for users.
export namespace shardmesh::detail {

// Appends this rank's objects to the part that is saved.
// errc::invalid_argument for an empty name.
result<void> add_rank_objects(const_local_state& part, const objects_of_rank& own, std::int32_t rank,
                              std::int32_t ranks);

// Returns the view of a state (`make_view`). The parts of a state are their own view.
template <class State>
auto view_on_rank(State& state, [[maybe_unused]] std::int32_t rank) {
  if constexpr (std::convertible_to<State&, const const_local_state&>)
    return result<const_local_state>(const_local_state(state));
  else
    return detail::make_view(state, rank);
}

template <class State>
using view_of_type = typename decltype(detail::view_on_rank(detail::any_state<State>(), 0))::value_type;

// A state and the objects of this rank, which are saved together.
template <class State>
struct state_with_rank_objects {
  State& state;
  const objects_of_rank& own;
  std::int32_t ranks = 1;
  std::optional<view_of_type<State>> kept{};  // the part may refer to memory in it
};

template <class State>
result<const_local_state> local_view(state_with_rank_objects<State>& both, std::int32_t rank) {
  auto view = detail::view_on_rank(both.state, rank);
  if (!view) return std::move(view).error();
  both.kept.emplace(*std::move(view));
  const_local_state part;
  if constexpr (requires { both.kept->to_save(); }) {
    auto made = both.kept->to_save();
    if (!made) return std::move(made).error();
    part = *std::move(made);
  } else {
    part = const_local_state(*both.kept);
  }
  if (auto added = add_rank_objects(part, both.own, rank, both.ranks); !added) return std::move(added).error();
  return part;
}

}  // namespace shardmesh::detail
