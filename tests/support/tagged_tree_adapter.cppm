// SPDX-License-Identifier: Apache-2.0
// shardmesh.test.tagged_tree: the node_adapter of tagged::node (tagged_tree.hpp), which makes it a tree. Tests only.
module;
#include <string>
#include <tagged_tree.hpp>
#include <utility>
#include <variant>
#include <vector>

export module shardmesh.test.tagged_tree;

import shardmesh.tree;

export template <>
struct shardmesh::node_adapter<tagged::node> {
  static node_kind kind(const tagged::node& n) {
    if (n.is_mapping()) return node_kind::mapping;
    if (n.type == "list") return node_kind::sequence;
    return n.type == "tuple" ? node_kind::tuple : node_kind::leaf;
  }
  template <class N, class Visit>
  static void children(N& n, Visit&& visit) {
    for (auto& [key, child] : n.children)
      if (!visit(key.index() == 0 ? path_key(std::get<0>(key)) : path_key(std::get<1>(key)), child)) return;
  }
  // Every mapping becomes a dict: a shape does not store the mapping's class.
  static tagged::node make(node_kind kind, std::vector<std::pair<path_key, tagged::node>> children) {
    tagged::node made{kind == node_kind::mapping ? "dict" : kind == node_kind::sequence ? "list" : "tuple", nullptr};
    for (auto& [key, child] : children)
      made.children.emplace_back(key.is_index() ? tagged::key(key.index()) : tagged::key(std::string(key.name())),
                                 std::move(child));
    return made;
  }
};
