// SPDX-License-Identifier: Apache-2.0
// flatten_tree and build: convert a tree of any node type to a spec with its leaves, and back. Names of leaves are in
// `key_policy`, and a spec from paths alone in `unflatten`.
export module shardmesh.tree:flat_view;

import shardmesh.std;
import shardmesh.core;
import :path;
import :spec;
import :state_node;
import :transform;
import :walk;

export namespace shardmesh {

/// A tree's shape and its leaves in order, as pointers into the tree or as handles. `leaves.size() == spec.leaves()`.
template <state_node Node>
struct flat_view {
  tree_spec spec;
  std::vector<node_ref<Node>> leaves;
};

/// Flattens a tree. The pointers are valid while the tree's nodes stay where they are.
/// \errors errc::duplicate_key naming the path; errc::overflow for a container of more than 2^31 - 1 children
/// Cost: O(nodes); O(n log n) for a mapping of n keys that are not in ascending order. Builds no paths. No recursion.
template <tree_root Root>
result<flat_view<detail::node_in<Root>>> flatten_tree(Root&& root) {
  using Node = root_node<Root>;
  using at = detail::reference_to<Node>;
  flat_view<Node> flat;
  tree_builder builder;
  struct container {
    std::size_t first, next;  // indices in `waiting`
  };
  std::vector<detail::keyed_node<Node>> waiting;  // children, from each container's first child container on
  std::vector<container> open;
  const auto add_leaf = [&](path_key key, node_ref<Node> node) {
    builder.leaf(std::move(key));
    flat.leaves.push_back(std::move(node));
  };
  const auto enter = [&](node_kind kind, path_key key, Node& node) {
    builder.begin(kind, std::move(key));
    const std::size_t first = waiting.size();
    detail::adapter_of<Node>::children(node, [&](path_key k, typename at::child child) {
      if (waiting.size() == first && detail::kind_of<Node>(child) == node_kind::leaf)
        add_leaf(std::move(k), at::of(child));
      else
        waiting.push_back({std::move(k), at::of(child)});
      return true;
    });
    if (waiting.size() == first) return builder.end();
    open.push_back({first, first});
  };
  const node_kind root_kind = detail::kind_of<Node>(root);
  if (root_kind == node_kind::leaf)
    add_leaf(0, at::of(root));
  else
    enter(root_kind, 0, root);
  while (!open.empty()) {
    container& innermost = open.back();
    if (innermost.next == waiting.size()) {
      waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(innermost.first), waiting.end());
      open.pop_back();
      builder.end();
      continue;
    }
    detail::keyed_node<Node> child = std::move(waiting[innermost.next++]);
    Node& node = at::node(child.node);
    const node_kind kind = detail::kind_of<Node>(node);
    if (kind == node_kind::leaf)
      add_leaf(std::move(child.key), std::move(child.node));
    else
      enter(kind, std::move(child.key), node);
  }
  auto spec = builder.finish();
  if (!spec) return std::move(spec).error();
  flat.spec = *std::move(spec);
  return flat;
}

/// Builds the tree of this shape with these leaves, in leaf order: the inverse of `flatten_tree`.
/// \errors errc::invalid_argument when the number of leaves differs from the spec's, or the spec is empty; and the
///         errors of Node's `make`
/// Cost: O(nodes). No recursion.
template <buildable_state_node Node>
result<Node> build(const tree_spec& spec, std::vector<Node> leaves) {
  if (leaves.size() != spec.leaves() || spec.nodes().empty())
    return fail(errc::invalid_argument, "the leaves do not fit the tree")
        .with_values(std::to_string(spec.leaves()) + " leaves", std::to_string(leaves.size()));
  const auto nodes = spec.nodes();
  const auto keys = spec.keys();
  if (nodes.size() == 1 && !leaves.empty()) return std::move(leaves.front());
  std::vector<Node> built;            // containers whose parent is not built yet
  std::vector<std::size_t> in_order;  // the children of the container being built
  std::size_t leaf = 0;               // number of leaves before the node
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    const tree_node& n = nodes[node];
    if (n.kind == node_kind::leaf) {
      ++leaf;
      continue;
    }
    in_order.resize(static_cast<std::size_t>(n.arity));
    std::size_t containers = 0;
    for (std::size_t i = in_order.size(), child = node; i-- > 0;) {
      in_order[i] = --child;
      containers += nodes[child].kind != node_kind::leaf;
      child -= static_cast<std::size_t>(nodes[child].nodes) - 1;
    }
    detail::built_children<Node> children;
    children.reserve(in_order.size());
    std::size_t next_leaf = leaf - static_cast<std::size_t>(n.leaves);
    auto next_built = built.end() - static_cast<std::ptrdiff_t>(containers);
    for (const std::size_t child : in_order) {
      const bool is_leaf = nodes[child].kind == node_kind::leaf;
      children.emplace_back(keys[child], std::move(is_leaf ? leaves[next_leaf] : *next_built++));
      next_leaf += static_cast<std::size_t>(nodes[child].leaves);
    }
    built.erase(built.end() - static_cast<std::ptrdiff_t>(containers), built.end());
    auto made = detail::make_node<Node>(n.kind, std::move(children), [&] { return to_string(spec.path_of(node)); });
    if (!made) return std::move(made).error();
    built.push_back(*std::move(made));
  }
  return std::move(built.back());
}

}  // namespace shardmesh
