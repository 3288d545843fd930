// SPDX-License-Identifier: Apache-2.0
// Builds state dicts in one pass: call by call, from paths, or from trees of other types. Also converts state dicts to
// trees of other types.
export module shardmesh.state:builder;

import shardmesh.std;
import shardmesh.sharding;
import shardmesh.tree;
import :dict;
import :value;

export namespace shardmesh {

/// Builds a state dict in one pass, O(1) per call:
///     state_dict_builder<my_tensor> b;
///     b.begin(node_kind::mapping).value("lr", 0.1).begin("layers", node_kind::sequence).value(t).end().end();
///     auto dict = b.finish();
///
/// `finish` reports calls in the wrong order.
template <local_tensor T>
class state_dict_builder {
 public:
  /// Begins a container without a key: the root, or an element of a sequence or tuple.
  state_dict_builder& begin(node_kind container) {
    tree_.begin(container);
    return *this;
  }
  /// Begins a container in a mapping.
  state_dict_builder& begin(path_key key, node_kind container) {
    tree_.begin(container, std::move(key));
    return *this;
  }
  state_dict_builder& end() {
    tree_.end();
    return *this;
  }
  /// Adds an element of a sequence or tuple (or a root that is a leaf).
  state_dict_builder& value(state_value<T> v) {
    tree_.leaf();
    leaves_.push_back(std::move(v));
    return *this;
  }
  /// Adds an entry of a mapping.
  state_dict_builder& value(path_key key, state_value<T> v) {
    tree_.leaf(std::move(key));
    leaves_.push_back(std::move(v));
    return *this;
  }
  /// Returns the state dict. \errors those of `tree_builder::finish`. The builder is empty afterwards.
  result<state_dict<T>> finish() {
    auto spec = tree_.finish();
    std::vector<state_value<T>> leaves = std::exchange(leaves_, {});
    if (!spec) return std::move(spec).error();
    return state_dict<T>::make(*std::move(spec), std::move(leaves));
  }

 private:
  tree_builder tree_;
  std::vector<state_value<T>> leaves_;
};

/// A path and its value.
template <local_tensor T>
using state_entry = std::pair<path, state_value<T>>;

/// Builds the state dict whose leaves have these paths, in any order. A container whose keys are all indices becomes a
/// sequence, with empty leaves for missing indices. Any other container becomes a mapping, in order of first
/// appearance.
/// \errors errc::duplicate_key; errc::invalid_argument if a path continues below the leaf of another or more than
///         2^20 indices are missing; each names the paths
/// Cost: O(total length of the paths).
template <local_tensor T>
result<state_dict<T>> build_state_dict(std::vector<state_entry<T>> entries) {
  std::vector<path> paths;
  paths.reserve(entries.size());
  for (auto& entry : entries) paths.push_back(std::move(entry.first));
  auto tree = unflatten(paths, {.max_holes = std::int64_t{1} << 20});
  if (!tree) return std::move(tree).error();
  std::vector<state_value<T>> leaves;
  leaves.reserve(tree->leaf_order.size());
  for (const std::size_t i : tree->leaf_order)
    leaves.push_back(i == unflattened::hole ? state_value<T>() : std::move(entries[i].second));
  return state_dict<T>::make(std::move(tree->spec), std::move(leaves));
}

}  // namespace shardmesh

namespace shardmesh::detail {

template <class Made, class Wanted>
concept value_or_result = std::same_as<Made, Wanted> || std::same_as<Made, result<Wanted>>;

template <class V>
struct is_state_value : std::false_type {};
template <class T>
struct is_state_value<state_value<T>> : std::true_type {};
template <class T>
struct is_state_value<result<state_value<T>>> : std::true_type {};

template <class V>
struct tensor_of;
template <class T>
struct tensor_of<state_value<T>> {
  using type = T;
};
template <class T>
struct tensor_of<result<state_value<T>>> {
  using type = T;
};

}  // namespace shardmesh::detail

export namespace shardmesh {

/// `f(Node& leaf) -> state_value<T>`, or a result of one.
template <class F, class Node>
concept leaf_reader = std::invocable<F&, Node&> && detail::is_state_value<std::invoke_result_t<F&, Node&>>::value;

/// `f(state_value<T>& value) -> Node`, or a result of one. It may move out of the value.
template <class F, class Node, class T>
concept leaf_writer =
    std::invocable<F&, state_value<T>&> && detail::value_or_result<std::invoke_result_t<F&, state_value<T>&>, Node>;

/// Makes a state dict of the same shape as a tree of any node type; `f` makes each leaf's value.
/// \errors those of `flatten_tree` and of f
/// Cost: O(nodes). No recursion.
template <state_node Node, leaf_reader<Node> F>
auto state_dict_from(Node& root, F&& f)
    -> result<state_dict<typename detail::tensor_of<std::invoke_result_t<F&, Node&>>::type>> {
  using T = typename detail::tensor_of<std::invoke_result_t<F&, Node&>>::type;
  auto flat = flatten_tree(root);
  if (!flat) return std::move(flat).error();
  std::vector<state_value<T>> leaves;
  leaves.reserve(flat->leaves.size());
  for (auto& leaf : flat->leaves) {
    result<state_value<T>> made = [&]() -> result<state_value<T>> {
      if constexpr (std::is_pointer_v<node_ref<Node>>)
        return f(*leaf);
      else
        return f(leaf);
    }();
    if (!made) return std::move(made).error();
    leaves.push_back(*std::move(made));
  }
  return state_dict<T>::make(std::move(flat->spec), std::move(leaves));
}

/// Makes a tree of any buildable node type, of the same shape as a state dict; `f` makes each leaf.
/// \errors those of `build` and of f
/// Cost: O(nodes). No recursion.
template <buildable_state_node Node, local_tensor T, leaf_writer<Node, T> F>
result<Node> tree_from(state_dict<T>&& dict, F&& f) {
  std::vector<Node> leaves;
  leaves.reserve(dict.size());
  for (state_value<T>& value : dict.leaves()) {
    result<Node> made = f(value);
    if (!made) return std::move(made).error();
    leaves.push_back(*std::move(made));
  }
  return build<Node>(dict.spec(), std::move(leaves));
}

}  // namespace shardmesh
