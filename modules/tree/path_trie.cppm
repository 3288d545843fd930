// SPDX-License-Identifier: Apache-2.0
// path_trie: the tree of keys that paths in any order make, for unflatten. Internal to the room.
module shardmesh.tree:path_trie;

import shardmesh.std;
import :key;
import :key_policy;
import :path;

namespace shardmesh {

using node_id = std::uint32_t;
inline constexpr node_id no_node = std::numeric_limits<node_id>::max();

// Paths, or those of items.
struct path_list {
  std::span<const path> paths{};
  std::span<const named_item> items{};

  std::size_t size() const { return paths.size() + items.size(); }
  const path& operator[](std::size_t i) const { return items.empty() ? paths[i] : items[i].where; }
};

// A node of the tree of paths. Children are a list in order of first appearance.
struct trie_node {
  const path_key* key = nullptr;  // in a path of the caller's; the root has none
  node_id parent = no_node;
  node_id first_child = no_node, last_child = no_node, next_sibling = no_node;
  std::uint32_t some_path = 0;  // which path came here first: that which ends here, if one does
  bool is_leaf = false;
};

// The tree of paths. Few children are searched one by one; those of a node with many are in one hash table of
// (parent, key).
class path_trie {
 public:
  path_trie();
  path_trie(path_trie&&) noexcept;
  path_trie& operator=(path_trie&&) noexcept;
  ~path_trie();
  void reserve(std::size_t nodes) { nodes_.reserve(nodes); }
  std::size_t size() const { return nodes_.size(); }
  trie_node& operator[](node_id node) { return nodes_[node]; }

  // The child with this key, made when there is none.
  node_id child(node_id parent, const path_key& key, std::size_t some_path);

 private:
  struct table;
  node_id append(node_id parent, const path_key& key, std::size_t some_path);

  std::vector<trie_node> nodes_;  // 0: the root
  std::unique_ptr<table> many_;
};

}  // namespace shardmesh
