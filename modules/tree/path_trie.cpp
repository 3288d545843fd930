// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <position_table.hpp>
module shardmesh.tree;

import :path_trie;

namespace shardmesh {
namespace {

constexpr std::size_t few = 8;

std::uint64_t hash_of(node_id parent, const path_key& key) {
  return hash_value(key) ^ (parent * std::uint64_t{0x9e3779b97f4a7c15} >> 20);
}

}  // namespace

// The children of all nodes with more than `few` children.
struct path_trie::table {
  detail::position_table children;
};

path_trie::path_trie() : nodes_(1), many_(std::make_unique<table>()) {}
path_trie::path_trie(path_trie&&) noexcept = default;
path_trie& path_trie::operator=(path_trie&&) noexcept = default;
path_trie::~path_trie() = default;

node_id path_trie::append(node_id parent, const path_key& key, std::size_t some_path) {
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

node_id path_trie::child(node_id parent, const path_key& key, std::size_t some_path) {
  std::size_t seen = 0;
  node_id child = nodes_[parent].first_child;
  for (; child != no_node && seen < few; child = nodes_[child].next_sibling, ++seen)
    if (*nodes_[child].key == key) return child;
  if (child == no_node && seen < few) return append(parent, key, some_path);
  const auto hash_at = [&](std::size_t node) { return hash_of(nodes_[node].parent, *nodes_[node].key); };
  if (child == no_node)  // the first of many: move the others into the table
    for (node_id c = nodes_[parent].first_child; c != no_node; c = nodes_[c].next_sibling)
      many_->children.insert(hash_at(c), c, hash_at);
  const std::uint64_t hash = hash_of(parent, key);
  const std::size_t there = many_->children.find(
      hash, [&](std::size_t node) { return nodes_[node].parent == parent && *nodes_[node].key == key; });
  if (there != detail::position_table::none) return static_cast<node_id>(there);
  const node_id made = append(parent, key, some_path);
  many_->children.insert(hash, made, hash_at);
  return made;
}

}  // namespace shardmesh
