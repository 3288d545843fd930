// SPDX-License-Identifier: Apache-2.0
// state_node: what a type of nested containers has to answer so that the room's functions can walk it, whatever it is
// made of. Not here: walking (visit, visit_together), building (transform, flatten_tree).
export module shardmesh.tree:state_node;

import shardmesh.std;
import shardmesh.core;
import :path;
import :spec;

namespace shardmesh {

/// The customisation point for trees: specialise it for a node type of your own.
///     template <> struct shardmesh::node_adapter<my_node> {
///       static node_kind kind(const my_node&);  // a leaf, or which container
///       // The children in order, until visit returns false. N is my_node or const my_node: what it gives is as const
///       // as what it was given. Elements of sequences and tuples have the keys 0, 1, ...
///       template <class N, class Visit> static void children(N&, Visit&& visit);  // visit(path_key, N& child) -> bool
///
///       // For functions that build trees; may also return result<my_node>. Keys of sequences are 0, 1, ...
///       static my_node make(node_kind container, std::vector<std::pair<path_key, my_node>> children);
///       // For a quick find(); nullptr (or nullopt) when there is no such child.
///       template <class N> static N* child(N&, const path_key&);
///     };
/// Asked for the children of a leaf, it gives none. The order of a node's children is the same each time.
/// A *handle* (cheap to copy, refers to a node that lives elsewhere) says `static constexpr bool is_handle = true;` and
/// gives children by value: `visit(path_key, my_handle) -> bool`, `std::optional<my_handle> child(...)`.
export template <class Node>
struct node_adapter;

namespace detail {

template <class N>
using adapter_of = node_adapter<std::remove_const_t<N>>;

template <class N>
concept handle_node = requires { requires static_cast<bool>(adapter_of<N>::is_handle); };

/// Where a walk keeps a node: a pointer, or the handle itself.
template <class N>
struct reference_to {
  using type = N*;
  using maybe = N*;
  using child = N&;
  static type of(N& node) { return &node; }
  static N& node(type kept) { return *kept; }
};
template <handle_node N>
struct reference_to<N> {
  using type = std::remove_const_t<N>;
  using maybe = std::optional<type>;
  using child = type;
  static type of(const N& node) { return node; }
  static N& node(type& kept) { return kept; }
};

/// The node type of a root. In the types of functions it stands unconstrained, so that a misuse is reported by the
/// function's own constraints.
template <class Root>
using node_in = std::remove_reference_t<Root>;

// What children() is called with when the concept asks.
template <class N>
struct child_probe {
  bool operator()(path_key, typename reference_to<N>::child) const;
};

template <class Made, class Node>
concept node_or_result = std::same_as<Made, Node> || std::same_as<Made, result<Node>>;

}  // namespace detail

/// A node of nested containers, const or not; see `node_adapter`. Semantics: children are a tree (no cycles, one parent
/// each), their order does not change by itself, and keys of one mapping are distinct.
export template <class N>
concept state_node = std::is_object_v<N> && requires(N& node, const detail::child_probe<N>& visit) {
  { detail::adapter_of<N>::kind(std::as_const(node)) } -> std::same_as<node_kind>;
  detail::adapter_of<N>::children(node, visit);
};

/// A state_node of which new ones can be made from their children; it can be moved.
export template <class N>
concept buildable_state_node =
    state_node<N> && std::movable<N> && requires(node_kind kind, std::vector<std::pair<path_key, N>> children) {
      { node_adapter<N>::make(kind, std::move(children)) } -> detail::node_or_result<N>;
    };

/// A node that stays where it is: `N*`; a handle itself for handles.
export template <state_node N>
using node_ref = typename detail::reference_to<N>::type;
/// A node, or none: `N*`, `std::optional` of a handle.
export template <state_node N>
using node_pointer = typename detail::reference_to<N>::maybe;

/// What a walk takes: a node that outlives it, or a handle, also a temporary one. A temporary tree is refused, since
/// walks give out pointers into it.
export template <class T>
concept tree_root = state_node<std::remove_reference_t<T>> &&
                    (std::is_lvalue_reference_v<T> || detail::handle_node<std::remove_reference_t<T>>);
/// The node type of a root, const or not.
export template <tree_root Root>
using root_node = std::remove_reference_t<Root>;

}  // namespace shardmesh
