// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>
module shardmesh.draw;

import :tree_rows;

namespace shardmesh {
namespace {

struct open_container {
  std::vector<std::size_t> children;
  std::size_t row = 0;
  std::size_t next = 0;
  std::size_t next_leaf = 0;  // the first leaf of the next child
};

std::string size_text(const tree_node& n) {
  const std::string count = n.arity == 0 ? "" : std::to_string(n.arity);
  if (n.kind == node_kind::mapping) return "{" + count + "}";
  return n.kind == node_kind::sequence ? "[" + count + "]" : "(" + count + ")";
}

}  // namespace

std::string_view cut_text(std::string_view text, std::size_t most) {
  std::size_t end = 0;
  for (std::size_t count = 0; end < text.size() && count < most; ++count)
    for (++end; end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80;) ++end;
  return text.substr(0, end);
}

std::vector<tree_row> rows_of(const tree_spec& tree, std::span<const std::string> leaf_labels, std::size_t most) {
  const auto nodes = tree.nodes();
  std::vector<tree_row> rows;
  if (nodes.empty()) return rows;
  std::vector<open_container> open;
  const auto add = [&](std::size_t node, bool is_last, std::size_t first_leaf) {
    tree_row row{.node = node, .depth = open.size(), .is_last = is_last};
    if (!open.empty()) {
      row.parent = open.back().row;
      row.key = escaped(to_string(path{tree.keys()[node]}));
    }
    if (nodes[node].kind != node_kind::leaf)
      row.rest = size_text(nodes[node]);
    else if (first_leaf < leaf_labels.size())
      row.rest = escaped(leaf_labels[first_leaf]);
    rows.push_back(std::move(row));
    if (nodes[node].arity > 0) open.push_back({tree.children(node), rows.size() - 1, 0, first_leaf});
  };
  add(nodes.size() - 1, true, 0);
  while (!open.empty() && rows.size() < most) {
    open_container& c = open.back();
    if (c.next == c.children.size()) {
      open.pop_back();
      continue;
    }
    const std::size_t node = c.children[c.next++], first_leaf = c.next_leaf;
    c.next_leaf += static_cast<std::size_t>(nodes[node].leaves);
    add(node, c.next == c.children.size(), first_leaf);
  }
  return rows;
}

}  // namespace shardmesh
