// SPDX-License-Identifier: Apache-2.0
// state_adapter: gives a local view to states beside which no function `local_view` can be declared, such as types of
// other libraries. The concepts of such states are in collective_checkpoint.
export module shardmesh.tree:state_adapter;

import shardmesh.std;
import shardmesh.core;
import :local_state;
import :path;

export namespace shardmesh {

/// Describes the part of a state that this rank holds. Specialise it for a type of another library:
///
///     static result<local_state> local_view(State& state);
///     static result<const_local_state> local_view(const State& state);  // optional: a const state can be saved
///     static result<void> set_objects(State& state, std::span<const local_state_object> objects);  // optional
///
/// They do what the functions of these names do for a type of your own (docs/concepts.md, has_local_view). Maps from
/// text to tensors have a specialisation, and so does a torch::nn::Module (room torch).
template <class State>
struct state_adapter {};

/// A map from text to tensors, such as std::map<std::string, host_tensor>: each tensor is at the path of its key alone.
template <class Map>
concept map_of_tensors = std::ranges::forward_range<Map> && requires {
  typename Map::key_type;
  typename Map::mapped_type;
} && std::same_as<typename Map::key_type, std::string> && local_tensor<typename Map::mapped_type>;

}  // namespace shardmesh

namespace shardmesh::detail {

void sort_by_path(std::vector<local_state_tensor>& tensors);
void sort_by_path(std::vector<const_local_state_tensor>& tensors);

}  // namespace shardmesh::detail

namespace shardmesh {

template <map_of_tensors Map>
struct state_adapter<Map> {
  /// Cost: O(tensors * log tensors); no elements are copied.
  /// \errors those of `check_tensor`, naming the key
  static result<local_state> local_view(Map& map) { return view_of_all<tensor_view>(map); }
  static result<const_local_state> local_view(const Map& map) { return view_of_all<const_tensor_view>(map); }

 private:
  template <tensor_view_type View, class Held>
  static result<basic_local_state<View>> view_of_all(Held& map) {
    basic_local_state<View> made;
    for (auto& [key, tensor] : map) {
      if (auto plain = check_tensor(tensor); !plain) return std::move(plain).error().with_key(key);
      const View memory = view_of(tensor);
      basic_local_state_tensor<View> held{{key}, memory.sizes, memory.type, {{box::whole(memory.sizes), memory}}};
      if constexpr (!std::is_const_v<Held> && counts_writes<typename Map::mapped_type>)
        held.written = [filled = &tensor] { note_written(*filled); };
      made.tensors.push_back(std::move(held));
    }
    detail::sort_by_path(made.tensors);  // files do not depend on the order of a hash table
    return made;
  }
};

}  // namespace shardmesh
