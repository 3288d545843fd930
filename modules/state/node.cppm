// SPDX-License-Identifier: Apache-2.0
// dict_node: a handle to a node of a state dict. It is a `state_node`, so every function of room tree can walk state
// dicts. Overloads of `visit` and `visit_together` take whole dicts.
export module shardmesh.state:node;

import shardmesh.std;
import shardmesh.sharding;
import shardmesh.tree;
import :dict;
import :value;

export namespace shardmesh {

/// A node of a `state_dict<T>`, or of a const one (`dict_node<const T>`). Cheap to copy. It refers to the dict, which
/// must not move or change its shape while nodes exist.
template <local_tensor T>
class dict_node {
 public:
  using dict_type = std::conditional_t<std::is_const_v<T>, const state_dict<std::remove_const_t<T>>, state_dict<T>>;
  using value_type = std::conditional_t<std::is_const_v<T>, const state_value<std::remove_const_t<T>>, state_value<T>>;

  /// The root.
  explicit dict_node(dict_type& dict) : dict_node(dict, dict.spec().nodes().size() - 1, 0) {}
  /// \param node        index in the spec of the dict
  /// \param first_leaf  the first leaf of its subtree
  dict_node(dict_type& dict, std::size_t node, std::size_t first_leaf)
      : dict_(&dict), node_(node), first_leaf_(first_leaf) {}

  node_kind kind() const { return dict_->spec().nodes()[node_].kind; }
  bool is_leaf() const { return kind() == node_kind::leaf; }
  /// Precondition: is_leaf().
  value_type& value() const { return dict_->leaves()[first_leaf_]; }
  /// The index in the spec of the dict.
  std::size_t node() const { return node_; }
  /// The node's leaves are [first_leaf, first_leaf + leaves) among the dict's leaves.
  std::size_t first_leaf() const { return first_leaf_; }
  std::size_t leaves() const { return static_cast<std::size_t>(dict_->spec().nodes()[node_].leaves); }
  dict_type& dict() const { return *dict_; }

  friend bool operator==(const dict_node&, const dict_node&) = default;

 private:
  dict_type* dict_;
  std::size_t node_, first_leaf_;
};

/// The root of a state dict.
template <local_tensor T>
dict_node<T> root_of(state_dict<T>& dict) {
  return dict_node<T>(dict);
}
template <local_tensor T>
dict_node<const T> root_of(const state_dict<T>& dict) {
  return dict_node<const T>(dict);
}

/// Adapts state dicts to the functions of room tree.
template <local_tensor T>
struct node_adapter<dict_node<T>> {
  static constexpr bool is_handle = true;
  static node_kind kind(const dict_node<T>& n) { return n.kind(); }
  /// Cost: O(children), even if `visit` stops, because children are found from the last to the first.
  template <class Visit>
  static void children(const dict_node<T>& n, Visit&& visit) {
    const auto nodes = n.dict().spec().nodes();
    const auto keys = n.dict().spec().keys();
    std::size_t leaf = n.first_leaf();
    for (const std::size_t child : n.dict().spec().children(n.node())) {
      if (!visit(path_key(keys[child]), dict_node<T>(n.dict(), child, leaf))) return;
      leaf += static_cast<std::size_t>(nodes[child].leaves);
    }
  }
  /// Cost: O(1) expected.
  static std::optional<dict_node<T>> child(const dict_node<T>& n, const path_key& key) {
    const auto node = n.dict().child_of(n.node(), key);
    if (!node) return std::nullopt;
    return dict_node<T>(n.dict(), *node, n.dict().first_leaf_of(*node));
  }
};

/// Visits the nodes of a state dict, including containers, as room tree's `visit`:
/// `f(const path&, dict_node<T>&) -> visit_step`.
template <local_tensor T, node_visitor<dict_node<T>> F>
bool visit(state_dict<T>& dict, F&& f) {
  dict_node<T> root(dict);
  return visit(root, std::forward<F>(f));
}
template <local_tensor T, node_visitor<dict_node<const T>> F>
bool visit(const state_dict<T>& dict, F&& f) {
  dict_node<const T> root(dict);
  return visit(root, std::forward<F>(f));
}

/// Visits two state dicts together, as room tree's `visit_together`; they may hold different tensors:
/// `f(const path&, dict_node<const A>*, dict_node<const B>*) -> visit_step`.
template <local_tensor A, local_tensor B, pair_visitor<dict_node<const A>, dict_node<const B>> F>
bool visit_together(const state_dict<A>& a, const state_dict<B>& b, F&& f) {
  dict_node<const A> left(a);
  dict_node<const B> right(b);
  return visit_together(left, right, std::forward<F>(f));
}
/// The same, and `f` may write to the first dict.
template <local_tensor A, local_tensor B, pair_visitor<dict_node<A>, dict_node<const B>> F>
bool visit_together(state_dict<A>& a, const state_dict<B>& b, F&& f) {
  dict_node<A> left(a);
  dict_node<const B> right(b);
  return visit_together(left, right, std::forward<F>(f));
}

}  // namespace shardmesh
