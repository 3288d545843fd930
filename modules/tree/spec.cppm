// SPDX-License-Identifier: Apache-2.0
// tree_spec: the shape of nested containers as a flat post-order array; leaves are stored beside it in the same order.
// tree_builder builds one, and functions over a spec are loops without recursion. `unflatten` builds a spec from paths.
export module shardmesh.tree:spec;

import shardmesh.std;
import shardmesh.core;
import :path;

export namespace shardmesh {

/// The kind of a node: a leaf, or a kind of container.
enum class node_kind : std::uint8_t {
  leaf,      // any value
  mapping,   // children by names or indices: a dict
  sequence,  // numbered children: a list
  tuple      // numbered children: a tuple
};

/// A node of a tree in post-order: children precede their parent.
struct tree_node {
  node_kind kind = node_kind::leaf;
  std::int32_t arity = 0;   // number of children
  std::int64_t nodes = 1;   // in the subtree, including this node
  std::int64_t leaves = 1;  // in the subtree
  friend bool operator==(const tree_node&, const tree_node&) = default;
};

/// The shape of nested containers. A regular value; two specs are equal when their kinds, keys, and orders are.
class tree_spec {
 public:
  inline std::size_t leaves() const { return nodes_.empty() ? 0 : static_cast<std::size_t>(nodes_.back().leaves); }
  /// The nodes in post-order, with the root last. Empty for a default-constructed spec.
  inline std::span<const tree_node> nodes() const { return nodes_; }
  /// The key of each node in its parent, aligned with `nodes()`. The root's key is index 0 and has no meaning.
  inline std::span<const path_key> keys() const { return keys_; }
  /// Returns the indices of a node's children, in order. Cost: O(children).
  std::vector<std::size_t> children(std::size_t node) const;
  /// Returns the index of every node's parent, aligned with `nodes()`; the root is its own parent. Cost: O(nodes).
  std::vector<std::size_t> parents() const;
  /// Returns the path of one node. Cost: O(siblings before the node and its ancestors).
  path path_of(std::size_t node) const;
  /// Returns the path of every node, aligned with `nodes()`. Cost: O(sum of depths). No recursion.
  std::vector<path> node_paths() const;
  /// Returns the path of every leaf, in leaf order. Cost: O(nodes + sum of the leaves' depths).
  std::vector<path> leaf_paths() const;

  friend bool operator==(const tree_spec&, const tree_spec&) = default;

 private:
  friend class tree_builder;
  friend class tree_editor;
  std::vector<tree_node> nodes_;
  std::vector<path_key> keys_;
};

/// Builds a spec in one pass, O(1) per call. The end of a mapping costs O(n log n) if its n keys do not ascend.
///     builder.begin(node_kind::mapping); builder.key("w"); builder.leaf(); builder.end();
class tree_builder {
 public:
  /// Reserves memory for this many nodes in all.
  void reserve(std::size_t nodes);
  /// Sets the key of the next child of a mapping. Sequences and tuples number their children instead.
  void key(path_key k);
  void leaf();
  void begin(node_kind container);
  /// Combines `key()` with `leaf()` or `begin()`. Sequences and tuples ignore the key.
  inline void leaf(path_key k) {
    if (open_.empty() || open_.back().arity == most_children) return any_leaf(&k);
    open_node& parent = open_.back();
    const std::int64_t position = parent.arity++;
    ++parent.leaves;
    made_.nodes_.emplace_back();
    if (parent.kind == node_kind::mapping)
      made_.keys_.push_back(std::move(k));
    else
      made_.keys_.emplace_back(position);
  }
  void begin(node_kind container, path_key k);
  void end();
  /// Ends a container as this kind, which may differ from the kind in `begin`. When a mapping ends as a sequence or
  /// tuple, its keys must be 0, 1, .. in order.
  void end(node_kind container);
  /// Returns the spec and empties the builder.
  /// \errors errc::invalid_argument (unbalanced, no root or several, a missing or misplaced key); errc::duplicate_key
  ///         naming the path; errc::overflow for a container of more than 2^31 - 1 children
  result<tree_spec> finish();

 private:
  struct open_node {
    node_kind kind;
    std::int32_t arity = 0;
    std::int64_t first_node = 0, leaves = 0;
    path_key own_key = 0;
  };
  static constexpr std::int32_t most_children = std::numeric_limits<std::int32_t>::max();

  path_key take_key(path_key* given);
  void any_leaf(path_key* key);
  void close(tree_node node, path_key key);
  void begin_with(node_kind container, path_key* key);
  void check_keys(const open_node& mapping);
  void complain(error why);
  void complain(const char* what);

  tree_spec made_;
  std::vector<open_node> open_;
  std::optional<path_key> next_key_;
  std::size_t roots_ = 0;
  std::optional<error> problem_;  // the first problem
};

}  // namespace shardmesh
