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

// The tree of paths. Few children are searched one by one; those of a node with many are in one hash table (open
// addressing) of (parent, key).
class path_trie {
 public:
  path_trie() : nodes_(1), slots_(16, no_node) {}
  void reserve(std::size_t nodes) { nodes_.reserve(nodes); }
  std::size_t size() const { return nodes_.size(); }
  trie_node& operator[](node_id node) { return nodes_[node]; }

  // The child with this key, made when there is none.
  node_id child(node_id parent, const path_key& key, std::size_t some_path) {
    std::size_t seen = 0;
    node_id child = nodes_[parent].first_child;
    for (; child != no_node && seen < few; child = nodes_[child].next_sibling, ++seen)
      if (*nodes_[child].key == key) return child;
    if (child == no_node && seen < few) return append(parent, key, some_path);
    if (child == no_node) add_children(parent);  // this is the first of many
    const std::size_t slot = find(parent, key);
    if (slots_[slot] != no_node) return slots_[slot];
    slots_[slot] = append(parent, key, some_path);
    const node_id made = slots_[slot];
    if (2 * ++used_ > slots_.size()) grow();
    return made;
  }

 private:
  static constexpr std::size_t few = 8;

  node_id append(node_id parent, const path_key& key, std::size_t some_path) {
    const auto made = static_cast<node_id>(nodes_.size());
    trie_node fresh;
    fresh.key = &key;
    fresh.parent = parent;
    fresh.some_path = static_cast<std::uint32_t>(some_path);
    nodes_.push_back(fresh);
    trie_node& p = nodes_[parent];
    (p.first_child == no_node ? p.first_child : nodes_[p.last_child].next_sibling) = made;
    p.last_child = made;
    return made;
  }
  void add_children(node_id parent) {
    for (node_id child = nodes_[parent].first_child; child != no_node; child = nodes_[child].next_sibling) {
      slots_[find(parent, *nodes_[child].key)] = child;
      if (2 * ++used_ > slots_.size()) grow();
    }
  }
  // Where the key is, or the free slot for it.
  std::size_t find(node_id parent, const path_key& key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = (hash_value(key) ^ (parent * std::size_t{0x9e3779b97f4a7c15ULL} >> 20)) & mask;
    for (; slots_[i] != no_node; i = (i + 1) & mask) {
      const trie_node& n = nodes_[slots_[i]];
      if (n.parent == parent && *n.key == key) break;
    }
    return i;
  }
  void grow() {
    std::vector<node_id> before(4 * slots_.size(), no_node);
    before.swap(slots_);
    for (const node_id node : before)
      if (node != no_node) slots_[find(nodes_[node].parent, *nodes_[node].key)] = node;
  }

  std::vector<trie_node> nodes_;  // 0: the root
  std::vector<node_id> slots_;
  std::size_t used_ = 0;
};

}  // namespace shardmesh
