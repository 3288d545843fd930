// SPDX-License-Identifier: Apache-2.0
// state_node: the requirements on a type of nested containers, so that the room's functions can walk it. Walking is in
// `visit` and `visit_together`; building is in `transform` and `flat_view`.
export module shardmesh.tree:state_node;

import shardmesh.std;
import shardmesh.core;
import :path;
import :spec;

namespace shardmesh {

/// The customisation point for trees: specialise it for a node type of your own.
///     template <> struct shardmesh::node_adapter<my_node> {
///       static node_kind kind(const my_node&);  // a leaf, or the kind of container
///       // Passes the children in order until visit returns false. N is my_node or const my_node; children have its
///       // constness. Elements of sequences and tuples have the keys 0, 1, ...
///       template <class N, class Visit> static void children(N&, Visit&& visit);  // visit(path_key, N& child) -> bool
///
///       // Optional, for functions that build trees; may also return result<my_node>. Keys of sequences are 0, 1, ...
///       static my_node make(node_kind container, std::vector<std::pair<path_key, my_node>> children);
///       // Optional, for a fast find(); returns nullptr (or nullopt) when there is no such child.
///       template <class N> static N* child(N&, const path_key&);
///     };
/// For a leaf, `children` passes nothing. The order of a node's children must be the same on each call.
/// A *handle* is cheap to copy and refers to a node that lives elsewhere. Its adapter declares
/// `static constexpr bool is_handle = true;` and passes children by value: `visit(path_key, my_handle) -> bool`,
/// `std::optional<my_handle> child(...)`.
export template <class Node>
struct node_adapter;

namespace detail {

template <class N>
using adapter_of = node_adapter<std::remove_const_t<N>>;

template <class N>
concept handle_node = requires { requires static_cast<bool>(adapter_of<N>::is_handle); };

/// The form in which a walk stores a node: a pointer, or the handle itself.
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

/// The node type of a root. Function types use it unconstrained, so that the function's own constraints report a
/// misuse.
template <class Root>
using node_in = std::remove_reference_t<Root>;

// The visitor with which the concept checks `children()`.
template <class N>
struct child_probe {
  bool operator()(path_key, typename reference_to<N>::child) const;
};

template <class Made, class Node>
concept node_or_result = std::same_as<Made, Node> || std::same_as<Made, result<Node>>;

}  // namespace detail

/// A node of nested containers, const or not; see `node_adapter`. Semantics: the children form a tree (no cycles, one
/// parent each), their order is stable, and the keys of one mapping are distinct.
export template <class N>
concept state_node = std::is_object_v<N> && requires(N& node, const detail::child_probe<N>& visit) {
  { detail::adapter_of<N>::kind(std::as_const(node)) } -> std::same_as<node_kind>;
  detail::adapter_of<N>::children(node, visit);
};

/// A movable state_node that can be made from its children.
export template <class N>
concept buildable_state_node =
    state_node<N> && std::movable<N> && requires(node_kind kind, std::vector<std::pair<path_key, N>> children) {
      { node_adapter<N>::make(kind, std::move(children)) } -> detail::node_or_result<N>;
    };

/// A reference to an existing node: `N*`, or the handle itself.
export template <state_node N>
using node_ref = typename detail::reference_to<N>::type;
/// A node or none: `N*`, or `std::optional` of a handle.
export template <state_node N>
using node_pointer = typename detail::reference_to<N>::maybe;

/// An argument for a walk: a node that outlives the walk, or a handle, even a temporary one. A temporary tree is
/// refused, since walks return pointers into it.
export template <class T>
concept tree_root = state_node<std::remove_reference_t<T>> &&
                    (std::is_lvalue_reference_v<T> || detail::handle_node<std::remove_reference_t<T>>);
/// The node type of a root, const or not.
export template <tree_root Root>
using root_node = std::remove_reference_t<Root>;

}  // namespace shardmesh
