// SPDX-License-Identifier: Apache-2.0
// tree_editor: small changes to a flat tree, in place. Trees are built in `spec`. The caller stores the leaves beside
// the spec and must move them itself.
export module shardmesh.tree:edit;

import shardmesh.std;
import shardmesh.core;
import :path;
import :spec;

export namespace shardmesh {

/// The change to one leaf: it stays, is dropped, or is replaced by a tree.
struct leaf_graft {
  const tree_spec* with = nullptr;  // has a root and lives until `graft` returns; null: the leaf stays
  bool drop = false;
};

/// Changes a spec. Nodes are identified by their index in `nodes()`; each call shifts the indices after its change.
/// Cost of each call: O(nodes from the change to the end + nodes added). No recursion.
class tree_editor {
 public:
  /// The spec must outlive the editor and have a root.
  explicit tree_editor(tree_spec& spec) : spec_(&spec) {}

  /// Replaces the subtree at `node` by `with`; the key stays. Precondition: the node exists, and `with` has a root.
  void replace(std::size_t node, const tree_spec& with);
  /// Adds a last child to a container. Sequences and tuples number the child and ignore `key`.
  /// Precondition: the node is a container; a mapping does not have `key` yet.
  /// \errors errc::overflow: more than 2^31 - 1 children
  result<void> append(std::size_t container, path_key key, const tree_spec& child);
  /// Adds `count` leaves at the end of a sequence or tuple. \errors errc::overflow
  result<void> append_leaves(std::size_t container, std::int64_t count);
  /// Removes the subtree at `node`; later elements of its sequence or tuple move up. Precondition: not the root.
  void erase(std::size_t node);

  /// Copies the subtree at `node` into a tree of its own. Precondition: the node exists. Cost: O(its nodes).
  static tree_spec subtree(const tree_spec& tree, std::size_t node);
  /// Replaces or drops leaves; `grafts` are in leaf order. Containers stay, even when all their children are dropped;
  /// elements after a dropped one move up. Dropping a root that is a leaf yields an empty spec.
  /// \errors errc::invalid_argument when the number of grafts differs from the number of leaves
  /// Cost: O(nodes + nodes of the result).
  static result<tree_spec> graft(const tree_spec& tree, std::span<const leaf_graft> grafts);

 private:
  void add_to(std::size_t first_ancestor, std::size_t below, std::int64_t nodes, std::int64_t leaves);
  tree_spec* spec_;
};

}  // namespace shardmesh
