// SPDX-License-Identifier: Apache-2.0
#include "entry_tree.hpp"

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh;
import shardmesh.tree;

namespace tool {
using namespace shardmesh;

namespace {

struct node {
  std::vector<std::pair<path_key, std::size_t>> children;  // in the order in which they appeared
  std::map<path_key, std::size_t> index_of;                // among the nodes
  const std::string* label = nullptr;                      // of an entry that ends here
};

path split(const path& whole) {
  if (whole.size() != 1 || whole[0].is_index()) return whole;
  path parts;
  std::string_view rest = whole[0].name();
  for (std::size_t dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
    parts.push_back(rest.substr(0, dot));
    rest.remove_prefix(dot + 1);
  }
  parts.push_back(rest);
  return parts;
}

std::vector<node> grow(const std::vector<std::pair<path, std::string>>& entries) {
  std::vector<node> nodes(1);
  for (const auto& [where, label] : entries) {
    std::size_t at = 0;
    for (const path_key& key : split(where)) {
      const auto [found, is_new] = nodes[at].index_of.try_emplace(key, nodes.size());
      const std::size_t child = found->second;
      if (is_new) {
        nodes[at].children.emplace_back(key, child);
        nodes.emplace_back();
      }
      at = child;
    }
    nodes[at].label = &label;
  }
  return nodes;
}

// Returns a name that no child has.
std::string own_name(const node& n) {
  std::string name = "(itself)";
  while (n.index_of.contains(name)) name += '\'';
  return name;
}

}  // namespace

result<labelled_tree> tree_of(const std::vector<std::pair<path, std::string>>& entries) {
  const std::vector<node> nodes = grow(entries);
  tree_builder builder;
  std::vector<std::string> labels;
  std::vector<std::pair<const node*, std::size_t>> open{{&nodes.front(), 0}};
  builder.begin(node_kind::mapping);
  while (!open.empty()) {
    auto& [parent, next] = open.back();
    if (next == parent->children.size()) {
      builder.end();
      open.pop_back();
      continue;
    }
    const auto& [key, at] = parent->children[next++];
    const node& child = nodes[at];
    if (child.children.empty()) {
      builder.leaf(key);
      labels.push_back(*child.label);
      continue;
    }
    builder.begin(node_kind::mapping, key);
    if (child.label != nullptr) {
      builder.leaf(own_name(child));
      labels.push_back(*child.label);
    }
    open.emplace_back(&child, 0);
  }
  auto made = builder.finish();
  if (!made) return std::move(made).error();
  return labelled_tree{*std::move(made), std::move(labels)};
}

}  // namespace tool
