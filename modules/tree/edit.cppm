// SPDX-License-Identifier: Apache-2.0
// tree_editor: small changes of a flat tree, in place. Not here: making one (spec), leaves, which lie beside the spec
// and are moved by whoever holds them.
export module shardmesh.tree:edit;

import shardmesh.std;
import shardmesh.core;
import :path;
import :spec;

export namespace shardmesh {

/// What becomes of a leaf: it stays, goes away, or a tree takes its place.
struct leaf_graft {
  const tree_spec* with = nullptr;  // with a root; alive until `graft` returns; null: the leaf stays
  bool drop = false;
};

/// Changes a spec. Nodes are named by their index in `nodes()`, which each call changes for what lies behind it.
/// Cost of each call: O(nodes from the change to the end + what is added). No recursion.
class tree_editor {
 public:
  /// The spec outlives the editor and has a root.
  explicit tree_editor(tree_spec& spec) : spec_(&spec) {}

  /// The subtree at `node` becomes `with`; it keeps its key. Precondition: the node exists, `with` has a root.
  void replace(std::size_t node, const tree_spec& with);
  /// A container gets another, last child. In sequences and tuples it is numbered and the key is ignored.
  /// Precondition: a container, of which a mapping has no such key yet.
  /// \errors errc::overflow: more than 2^31 - 1 children
  result<void> append(std::size_t container, path_key key, const tree_spec& child);
  /// A container that numbers its children gets `count` more leaves at its end. \errors errc::overflow
  result<void> append_leaves(std::size_t container, std::int64_t count);
  /// The subtree at `node` goes away; later elements of its sequence or tuple move up. Precondition: not the root.
  void erase(std::size_t node);

  /// The subtree at `node` as a tree of its own. Precondition: the node exists. Cost: O(its nodes).
  static tree_spec subtree(const tree_spec& tree, std::size_t node);
  /// The tree with grafts in place of its leaves, `grafts` in leaf order. Containers stay, also when all their children
  /// go; elements behind one that goes move up. A root that is a leaf and goes leaves an empty spec.
  /// \errors errc::invalid_argument when there are not as many grafts as leaves
  /// Cost: O(nodes + nodes of the result).
  static result<tree_spec> graft(const tree_spec& tree, std::span<const leaf_graft> grafts);

 private:
  void add_to(std::size_t first_ancestor, std::size_t below, std::int64_t nodes, std::int64_t leaves);
  tree_spec* spec_;
};

}  // namespace shardmesh
