// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.draw;

namespace shardmesh {
namespace {

struct open_container {
  std::vector<std::size_t> children;
  std::size_t next = 0;
  std::size_t next_leaf = 0;      // of the next child, the first
  std::size_t prefix_length = 0;  // of the lines of the children
};

// At most this many characters (code points) of well-formed text.
std::string_view cut(std::string_view text, std::size_t most) {
  std::size_t end = 0;
  for (std::size_t count = 0; end < text.size() && count < most; ++count)
    for (++end; end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80;) ++end;
  return text.substr(0, end);
}

std::string size_text(const tree_node& n) {
  const std::string count = n.arity == 0 ? "" : std::to_string(n.arity);
  if (n.kind == node_kind::mapping) return "{" + count + "}";
  return n.kind == node_kind::sequence ? "[" + count + "]" : "(" + count + ")";
}

// "key {2}", "key  label", fitted into `room` characters.
std::string node_text(const tree_node& n, std::string_view key, std::string_view label, std::size_t room, bool color) {
  const std::string fitted(cut(key, room));
  room -= std::min(room, cut(key, room).size());
  std::string rest = n.kind == node_kind::leaf ? std::string(label) : size_text(n);
  if (!fitted.empty() && !rest.empty()) rest.insert(0, n.kind == node_kind::leaf ? "  " : " ");
  rest.resize(cut(rest, room).size());
  if (!color || n.kind == node_kind::leaf) return fitted + rest;
  const int hue = n.kind == node_kind::mapping ? 4 : n.kind == node_kind::sequence ? 6 : 5;
  return fmt::format("\x1b[1;3{}m{}\x1b[0m{}", hue, fitted, rest);
}

}  // namespace

std::string draw_tree(const tree_spec& tree, std::span<const std::string> leaf_labels, const draw_options& options) {
  const auto nodes = tree.nodes();
  if (nodes.empty()) return "";
  std::string text, prefix;
  std::size_t lines = 0;
  std::vector<open_container> open;
  const auto draw = [&](std::size_t node, std::string_view branch, std::size_t first_leaf) {
    const std::string key = open.empty() ? "" : escaped(to_string(path{tree.keys()[node]}));
    const bool labelled = nodes[node].kind == node_kind::leaf && first_leaf < leaf_labels.size();
    const std::string label = labelled ? escaped(leaf_labels[first_leaf]) : "";
    const std::size_t taken = prefix.size() + branch.size();
    const std::size_t room = options.max_columns > taken ? options.max_columns - taken : 0;
    text += fmt::format("{}{}{}\n", prefix, branch, node_text(nodes[node], key, label, room, options.color));
    ++lines;
  };
  draw(nodes.size() - 1, "", 0);
  if (nodes.back().arity > 0) open.push_back({tree.children(nodes.size() - 1)});
  while (!open.empty() && lines < options.max_lines) {
    open_container& c = open.back();
    if (c.next == c.children.size()) {
      open.pop_back();
      continue;
    }
    prefix.resize(c.prefix_length);
    const std::size_t node = c.children[c.next++];
    const std::size_t first_leaf = c.next_leaf;
    const bool is_last = c.next == c.children.size();
    c.next_leaf += static_cast<std::size_t>(nodes[node].leaves);
    draw(node, is_last ? "`- " : "|- ", first_leaf);
    if (nodes[node].arity == 0) continue;
    prefix += is_last ? "   " : "|  ";
    open.push_back({tree.children(node), 0, first_leaf, prefix.size()});
  }
  if (lines < nodes.size()) text += fmt::format("and {} more nodes\n", nodes.size() - lines);
  return text;
}

}  // namespace shardmesh
