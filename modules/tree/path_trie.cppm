// SPDX-License-Identifier: Apache-2.0
// path_trie: a trie of paths in any order, for `unflatten`. Internal to the room.
module shardmesh.tree:path_trie;

import shardmesh.std;
import :key;
import :key_policy;
import :path;

namespace shardmesh {

using node_id = std::uint32_t;
inline constexpr node_id no_node = std::numeric_limits<node_id>::max();

// A list of paths, given directly or through items.
struct path_list {
  std::span<const path> paths{};
  std::span<const named_item> items{};

  std::size_t size() const { return paths.size() + items.size(); }
  const path& operator[](std::size_t i) const { return items.empty() ? paths[i] : items[i].where; }
};

// A node of the trie. Its children form a linked list in order of first appearance.
struct trie_node {
  const path_key* key = nullptr;  // points into a path of the caller; null for the root
  node_id parent = no_node;
  node_id first_child = no_node, last_child = no_node, next_sibling = no_node;
  std::uint32_t some_path = 0;  // the first path through this node; for a leaf, the path that ends here
  bool is_leaf = false;
};

// The trie of paths. A node with few children is searched linearly. The children of all larger nodes share one hash
// table of (parent, key).
class path_trie {
 public:
  path_trie();
  path_trie(path_trie&&) noexcept;
  path_trie& operator=(path_trie&&) noexcept;
  ~path_trie();
  void reserve(std::size_t nodes) { nodes_.reserve(nodes); }
  std::size_t size() const { return nodes_.size(); }
  trie_node& operator[](node_id node) { return nodes_[node]; }

  // Returns the child with this key, and makes it when there is none.
  node_id child(node_id parent, const path_key& key, std::size_t some_path);

 private:
  struct table;
  node_id append(node_id parent, const path_key& key, std::size_t some_path);

  std::vector<trie_node> nodes_;  // 0: the root
  std::unique_ptr<table> many_;
};

}  // namespace shardmesh
