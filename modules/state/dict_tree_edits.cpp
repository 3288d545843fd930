// SPDX-License-Identifier: Apache-2.0
// Edits of a dict_tree. The index of its paths is in `dict_tree.cpp`.
module;
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <shardmesh/try.hpp>
module shardmesh.state;

namespace shardmesh::detail {
namespace {

// The first `keys` keys of a path as text.
std::string spelled(const path& where, std::size_t keys) {
  path begin;
  for (std::size_t i = 0; i < keys; ++i) begin.push_back(where[i]);
  return to_string(begin);
}

error too_far(const path& where, std::size_t depth) {
  return fail(errc::out_of_bounds, "an index is too far beyond the end of its sequence")
      .with_key(spelled(where, depth + 1))
      .with_values("at most " + std::to_string(max_made_up_leaves) + " places in between",
                   std::to_string(where[depth].index()));
}

// Makes nested containers for the keys from `first` on, with one leaf at the end, and empty leaves before it up to each
// index. Makes a leaf if there are no more keys.
result<tree_spec> chain(const path& where, std::size_t first, std::int64_t made_up) {
  tree_builder builder;
  for (std::size_t i = first; i < where.size(); ++i) {
    const path_key& key = where[i];
    const path_key own = i == first ? path_key(0) : where[i - 1];
    if (!key.is_index()) {
      builder.begin(node_kind::mapping, own);
      continue;
    }
    if (key.index() < 0)
      return fail(errc::out_of_bounds, "a negative index needs a sequence that exists").with_key(spelled(where, i + 1));
    if (key.index() > max_made_up_leaves - made_up) return too_far(where, i);
    made_up += key.index();
    builder.begin(node_kind::sequence, own);
    for (std::int64_t k = 0; k < key.index(); ++k) builder.leaf(0);
  }
  builder.leaf(first == where.size() ? path_key(0) : where[where.size() - 1]);
  for (std::size_t i = first; i < where.size(); ++i) builder.end();
  return builder.finish();
}

leaf_edit edit_with(std::size_t first, std::size_t removed, std::size_t new_leaves) {
  return {first, removed, new_leaves - 1, true};
}

}  // namespace

// Adds the child where[depth] to the container at depth `depth` of the path. Precondition: it has no such child.
result<leaf_edit> dict_tree::add_child(std::size_t container, const path& where, std::size_t depth) {
  const tree_node n = spec_.nodes()[container];
  const path_key& key = where[depth];
  std::int64_t gap = 0;
  if (n.kind == node_kind::tuple)
    return fail(errc::out_of_bounds, "a tuple cannot grow").with_key(spelled(where, depth + 1));
  if (n.kind == node_kind::sequence) {
    if (!key.is_index())
      return fail(errc::invalid_argument, "a sequence's elements have indices, not names")
          .with_key(spelled(where, depth + 1));
    if (key.index() < 0)
      return fail(errc::out_of_bounds, "a negative index goes beyond the first element")
          .with_key(spelled(where, depth + 1))
          .with_values("at least " + std::to_string(-n.arity), std::to_string(key.index()));
    gap = key.index() - n.arity;
    if (gap > max_made_up_leaves) return too_far(where, depth);
  }
  SHARDMESH_TRY(const tree_spec child, chain(where, depth + 1, gap));
  const leaf_edit edit = edit_with(first_leaf(container) + static_cast<std::size_t>(n.leaves), 0,
                                   static_cast<std::size_t>(gap) + child.leaves());
  tree_editor editor(spec_);
  if (gap > 0) {
    SHARDMESH_TRY(editor.append_leaves(container, gap));
    added(container, static_cast<std::size_t>(gap));
    container += static_cast<std::size_t>(gap);
  }
  SHARDMESH_TRY(editor.append(container, key, child));
  added(container, child.nodes().size());
  return edit;
}

result<leaf_edit> dict_tree::set(const path& where, function_ref<bool(std::size_t leaf)> is_none) {
  std::size_t node = spec_.nodes().size() - 1, parent = node;
  if (where.empty())
    return fail(errc::invalid_argument, "the empty path is the whole state dict, which a leaf cannot replace");
  for (std::size_t depth = 0; depth < where.size(); ++depth) {
    const tree_node& n = spec_.nodes()[node];
    if (n.kind == node_kind::leaf) {
      // As in PyTorch, an empty leaf of a sequence can become a container; any other leaf is in the way.
      const std::size_t leaf = first_leaf(node);
      if (node == parent || spec_.nodes()[parent].kind != node_kind::sequence || !is_none(leaf))
        return fail(errc::invalid_argument, "the path leads through a leaf")
            .with_key(to_string(where))
            .with_values("a container at " + spelled(where, depth), "a leaf");
      SHARDMESH_TRY(const tree_spec with, chain(where, depth, 0));
      tree_editor(spec_).replace(node, with);
      forget_index();
      return edit_with(leaf, 1, with.leaves());
    }
    const auto next = child(node, where[depth]);
    if (!next) return add_child(node, where, depth);
    parent = std::exchange(node, *next);
  }
  const tree_node& n = spec_.nodes()[node];
  const leaf_edit edit = edit_with(first_leaf(node), static_cast<std::size_t>(n.leaves), 1);
  if (n.kind == node_kind::leaf) return edit;
  SHARDMESH_TRY(const tree_spec leaf, chain(where, where.size(), 0));
  tree_editor(spec_).replace(node, leaf);
  forget_index();
  return edit;
}

result<leaf_edit> dict_tree::erase(const path& where) {
  if (where.empty())
    return fail(errc::invalid_argument, "the empty path is the whole state dict, which cannot be erased");
  const auto node = find(where);
  if (!node) return fail(errc::missing_key, "there is nothing to erase").with_key(to_string(where));
  std::size_t parent = *node + 1;
  // The first subtree behind the node that begins before it.
  while (parent + 1 - static_cast<std::size_t>(spec_.nodes()[parent].nodes) > *node) ++parent;
  if (spec_.nodes()[parent].kind == node_kind::tuple)
    return fail(errc::invalid_argument, "an element of a tuple cannot be erased")
        .with_key(to_string(where))
        .with_hint("set the element to an empty value instead");
  const leaf_edit edit{first_leaf(*node), static_cast<std::size_t>(spec_.nodes()[*node].leaves), 0, false};
  tree_editor(spec_).erase(*node);
  forget_index();
  return edit;
}

}  // namespace shardmesh::detail
