// SPDX-License-Identifier: Apache-2.0
// tree_spec: the shape of nested containers as a flat post-order array, beside which leaves lie in order; and its
// builder. Map, compare and hash are loops. Not here: what leaves are.
module;
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>
export module shardmesh.tree:spec;

import shardmesh.core;
import :path;

export namespace shardmesh {

enum class node_kind : std::uint8_t { leaf, mapping, sequence, tuple };

/// A node of a tree in post-order: children precede their parent.
struct tree_node {
  node_kind kind = node_kind::leaf;
  std::int32_t arity = 0;   // children
  std::int64_t nodes = 1;   // of the whole subtree, itself included
  std::int64_t leaves = 1;  // of the whole subtree
  friend bool operator==(const tree_node&, const tree_node&) = default;
};

/// The shape of nested containers. A regular value; equal when kinds, keys and their order are.
class tree_spec {
 public:
  std::size_t leaves() const { return nodes_.empty() ? 0 : static_cast<std::size_t>(nodes_.back().leaves); }
  /// In post-order; the root is the last. Empty for a default-made spec.
  std::span<const tree_node> nodes() const { return nodes_; }
  /// The key of each node in its parent, aligned with nodes(); the root's is index 0 and means nothing.
  std::span<const path_key> keys() const { return keys_; }
  /// Indices of a node's children, in order. Cost: O(children).
  std::vector<std::size_t> children(std::size_t node) const;
  /// The path of every node, aligned with nodes(). Cost: O(sum of depths). No recursion.
  std::vector<path> node_paths() const;
  /// The path of every leaf, in leaf order.
  std::vector<path> leaf_paths() const;

  friend bool operator==(const tree_spec&, const tree_spec&) = default;

 private:
  friend class tree_builder;
  std::vector<tree_node> nodes_;
  std::vector<path_key> keys_;
};

/// Builds a spec in one pass, O(1) per call:
///     builder.begin(node_kind::mapping); builder.key("w"); builder.leaf(); builder.end();
class tree_builder {
 public:
  /// The key of the next child; of a mapping only (children of sequences and tuples are numbered).
  void key(path_key k);
  void leaf();
  void begin(node_kind container);
  void end();
  /// \errors errc::invalid_argument (unbalanced, no root or several, a missing or misplaced key), errc::duplicate_key
  /// naming the path
  result<tree_spec> finish();

 private:
  struct open_node {
    node_kind kind;
    std::int32_t arity = 0;
    std::int64_t first_node = 0, leaves = 0;
    path_key own_key = 0;
  };
  path_key take_key();
  void close(tree_node node, path_key key);
  void complain(std::string what);

  tree_spec made_;
  std::vector<open_node> open_;
  std::vector<path_key> next_key_;  // none or one
  std::size_t roots_ = 0;
  std::string problem_;
};

/// The tree whose leaves have these paths, in any order; `leaf_order[i]` of the result is which path is leaf i.
/// Containers whose keys are the indices 0 .. n-1 become sequences, others mappings, in order of first appearance.
/// \errors errc::duplicate_key, errc::invalid_argument when one path leads through another, both naming the paths
/// Cost: O(total length). No recursion.
struct unflattened {
  tree_spec spec;
  std::vector<std::size_t> leaf_order;
};
result<unflattened> unflatten(std::span<const path> paths);

}  // namespace shardmesh
