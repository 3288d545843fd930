// SPDX-License-Identifier: Apache-2.0
// has_local_view: the concepts of states that `save` and `load` take as they are, and the calls of `local_view` and
// `set_objects` on them, also for rooms above. The states themselves are in rooms state, fsdp, and torch, and in users'
// code.
export module shardmesh.collective_checkpoint:has_local_view;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;

export namespace shardmesh::detail {

template <class State>
concept viewed_alone = requires(State& state) {
  { local_view(state) } -> some_result;
};
template <class State>
concept viewed_by_rank = requires(State& state, std::int32_t rank) {
  { local_view(state, rank) } -> some_result;
};
template <class State>
concept viewed_by_adapter = requires(State& state) {
  { state_adapter<std::remove_const_t<State>>::local_view(state) } -> some_result;
};

template <class State>
concept viewed = viewed_alone<State> || viewed_by_rank<State> || viewed_by_adapter<State>;

/// Calls the `local_view` that argument-dependent look-up finds; the one without a rank if there are both. Without
/// such a function, calls that of the adapter.
template <viewed State>
auto make_view(State& state, [[maybe_unused]] std::int32_t rank) {
  if constexpr (viewed_alone<State>)
    return local_view(state);
  else if constexpr (viewed_by_rank<State>)
    return local_view(state, rank);
  else
    return state_adapter<std::remove_const_t<State>>::local_view(state);
}

template <class State>
State& any_state();  // for decltype; not defined
template <class State>
using view_of_state = typename decltype(detail::make_view(any_state<State>(), 0))::value_type;

template <class View>
concept view_to_save =
    std::same_as<View, local_state> || std::same_as<View, const_local_state> || requires(View& view) {
      { view.to_save() } -> std::same_as<result<const_local_state>>;
    };
template <class View>
concept view_to_load =
    std::same_as<View, local_state> || requires(View& view, const std::function<bool(std::string_view)>& has) {
      { view.to_load(has) } -> std::same_as<local_state>;
    };

template <class State>
concept has_set_objects = requires(State& state, std::span<const local_state_object> objects) {
  { set_objects(state, objects) } -> std::same_as<result<void>>;
};
template <class State>
concept adapter_sets_objects = requires(State& state, std::span<const local_state_object> objects) {
  { state_adapter<std::remove_const_t<State>>::set_objects(state, objects) } -> std::same_as<result<void>>;
};

}  // namespace shardmesh::detail

export namespace shardmesh {

/// A state whose part on this rank `local_view(state)` or `local_view(state, rank)` describes, so that `save` takes it.
/// Argument-dependent look-up finds the function: declare it beside your type. It returns a `result` of a
/// `local_state`, of a `const_local_state`, or of a type with a `to_save` that returns a `result<const_local_state>`.
/// For a type of another library, specialise `state_adapter`. `state_dict<T>`, `fsdp_model`, maps from text to tensors,
/// and a torch::nn::Module model it, const or not. `docs/concepts.md` has the semantic rules.
template <class State>
concept has_local_view = detail::viewed<State> && detail::view_to_save<detail::view_of_state<State>>;

/// A state with a local view that `load` can write through: a `local_state`, or a type with a `to_load(has)` that
/// returns one. Loaded objects go to `set_objects(state, objects)`, which argument-dependent look-up finds. A state
/// without this function has tensors only. A const `state_dict<T>` is not a model.
template <class State>
concept has_writable_local_view = has_local_view<State> && detail::view_to_load<detail::view_of_state<State>>;

}  // namespace shardmesh

export namespace shardmesh::detail {

/// Returns this rank's part, to be saved. `kept` receives the view, because the part may refer to memory in it.
template <has_local_view State>
result<const_local_state> part_to_save(State& state, std::int32_t rank, std::optional<view_of_state<State>>& kept) {
  auto view = detail::make_view(state, rank);
  if (!view) return std::move(view).error();
  kept.emplace(*std::move(view));
  if constexpr (requires { kept->to_save(); }) {
    return kept->to_save();
  } else {
    const_local_state part = *kept;
    return part;
  }
}

/// Returns this rank's part, to be loaded from a source that has the tensors for which `has` is true. `kept` receives
/// the view, as above.
/// \errors also errc::unsupported with the key: an object in a state that cannot take its loaded value
template <has_writable_local_view State>
result<local_state> part_to_load(State& state, std::int32_t rank, const std::function<bool(std::string_view)>& has,
                                 std::optional<view_of_state<State>>& kept) {
  auto view = detail::make_view(state, rank);
  if (!view) return std::move(view).error();
  kept.emplace(*std::move(view));
  local_state part;
  if constexpr (std::same_as<view_of_state<State>, local_state>) {
    part = *std::move(kept);
  } else {
    part = kept->to_load(has);
  }
  if constexpr (!has_set_objects<State> && !adapter_sets_objects<State>) {
    if (!part.objects.empty())
      return fail(errc::unsupported, "the local view has an object, but the state has no set_objects for its value")
          .with_key(dotted(part.objects.front().where))
          .with_hint("declare result<void> set_objects(State&, std::span<const local_state_object>) beside the state");
  }
  return part;
}

/// Puts loaded objects into the state.
template <has_writable_local_view State>
result<void> take_objects([[maybe_unused]] State& state, [[maybe_unused]] std::span<const local_state_object> objects) {
  if constexpr (has_set_objects<State>)
    return set_objects(state, objects);
  else if constexpr (adapter_sets_objects<State>)
    return state_adapter<std::remove_const_t<State>>::set_objects(state, objects);
  else
    return {};
}

}  // namespace shardmesh::detail
