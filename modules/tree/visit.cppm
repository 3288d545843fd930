// SPDX-License-Identifier: Apache-2.0
// visit, visit_post, visit_leaves, find: one tree, any node type. Pairs of trees are in `visit_together`; new trees are
// in `transform` and `flat_view`.
module;
#include <shardmesh/refuse.hpp>
export module shardmesh.tree:visit;

import shardmesh.std;
import shardmesh.core;
import :path;
import :spec;
import :state_node;
import :walk;

export namespace shardmesh {

/// A visitor's choice of the next step: descend into the node's children, skip them, or stop the visit.
enum class visit_step : std::uint8_t { into, over, stop };

/// `f(const path&, Node&) -> visit_step`.
template <class F, class Node>
concept node_visitor =
    std::invocable<F&, const path&, Node&> && std::same_as<std::invoke_result_t<F&, const path&, Node&>, visit_step>;

/// `f(const path&, Node&)`, which returns nothing, or a bool that is false to stop.
template <class F, class Node>
concept node_observer =
    std::invocable<F&, const path&, Node&> && (std::is_void_v<std::invoke_result_t<F&, const path&, Node&>> ||
                                               std::same_as<std::invoke_result_t<F&, const path&, Node&>, bool>);

/// Calls f for every node, including empty containers: parents before children, children in their order.
/// \param f  `f(const path&, Node&) -> visit_step`; the root has the empty path. f may assign to the node, and the
///           visit then descends into the new value. f must not add or remove children of containers that are being
///           walked.
/// \returns false when f stopped the visit
/// Cost: O(nodes). Paths add nothing, since a child's path extends its parent's in place. A visit that stops after k
/// children of a node has requested only O(k) of them from the adapter. No recursion.
/// Source: torch.distributed.checkpoint._traverse.traverse_state_dict, whose `keep_traversing` is `over` here.
template <tree_root Root, node_visitor<root_node<Root>> F>
bool visit(Root&& root, F&& f) {
  using Node = root_node<Root>;
  path where;
  detail::open_containers<Node> open;
  const auto enter = [&](Node& node) {
    const visit_step step = f(std::as_const(where), node);
    if (step == visit_step::into && detail::kind_of<Node>(node) != node_kind::leaf) open.enter(node);
    return step != visit_step::stop;
  };
  if (!enter(root)) return false;
  while (!open.empty()) {
    if (auto* child = open.next()) {
      where.push_back(std::move(child->key));
      const std::size_t depth = open.size();
      if (!enter(detail::reference_to<Node>::node(child->node))) return false;
      if (open.size() == depth) where.pop_back();
    } else {
      open.leave();
      if (!open.empty()) where.pop_back();
    }
  }
  return true;
}

/// Refuses any function that is not a visitor.
template <tree_root Root, class F>
  requires(!node_visitor<F, root_node<Root>>)
bool visit(Root&& root, F&& f) = SHARDMESH_REFUSE(
    "visit calls f(const path&, Node&), which returns a visit_step: into its children, over them, or stop");

/// Calls f for every node, children before their container.
/// \param f  `f(const path&, Node&)`, returning nothing, or false to stop; f may assign to the node
/// \returns false when f stopped the visit
/// Cost: as `visit`.
template <tree_root Root, node_observer<root_node<Root>> F>
bool visit_post(Root&& root, F&& f) {
  using Node = root_node<Root>;
  path where;
  detail::open_containers<Node> open;
  if (detail::kind_of<Node>(root) == node_kind::leaf) return detail::goes_on(f, std::as_const(where), root);
  open.enter(root);
  while (!open.empty()) {
    if (auto* child = open.next()) {
      Node& node = detail::reference_to<Node>::node(child->node);
      where.push_back(std::move(child->key));
      if (detail::kind_of<Node>(node) != node_kind::leaf) {
        open.enter(node);
        continue;
      }
      if (!detail::goes_on(f, std::as_const(where), node)) return false;
    } else {
      if (!detail::goes_on(f, std::as_const(where), open.node())) return false;
      open.leave();
      if (open.empty()) return true;
    }
    where.pop_back();
  }
  return true;
}

/// Calls f for every leaf, in order. Empty containers are not leaves.
/// \param f  `f(const path&, Node&)`, returning nothing, or false to stop. f may assign to the node; the visit does not
///           descend into the new value.
/// \returns false when f stopped the visit
/// Cost: as `visit`.
template <tree_root Root, node_observer<root_node<Root>> F>
bool visit_leaves(Root&& root, F&& f) {
  using Node = root_node<Root>;
  return visit(root, [&](const path& where, Node& node) {
    if (detail::kind_of<Node>(node) != node_kind::leaf) return visit_step::into;
    return detail::goes_on(f, where, node) ? visit_step::over : visit_step::stop;
  });
}

/// Returns the node at a path as `Node*`, or as `std::optional` of a handle; empty when there is none.
/// Cost: for each container on the way, O(children before the sought one), or one look-up when the adapter has `child`.
template <tree_root Root>
typename detail::reference_to<detail::node_in<Root>>::maybe find(Root&& root, const path& where) {
  using Node = root_node<Root>;
  using at = detail::reference_to<Node>;
  node_pointer<Node> here = at::of(root);
  for (const path_key& key : where) {
    node_pointer<Node> next{};
    if constexpr (requires {
                    { detail::adapter_of<Node>::child(*here, key) } -> std::convertible_to<node_pointer<Node>>;
                  }) {
      next = detail::adapter_of<Node>::child(*here, key);
    } else {
      detail::adapter_of<Node>::children(*here, [&](const path_key& k, typename at::child child) {
        if (k != key) return true;
        next = at::of(child);
        return false;
      });
    }
    if (!next) return {};
    here = std::move(next);
  }
  return here;
}

}  // namespace shardmesh
