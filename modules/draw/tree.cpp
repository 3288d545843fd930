// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>
module shardmesh.draw;

import :tree_rows;

namespace shardmesh {
namespace {

// "key {2}" or "key  label" in `room` characters. A key keeps its end, a label its beginning.
std::string row_text(const tree_row& row, node_kind kind, std::size_t room, bool color) {
  const std::string fitted = shortened(row.key, room);
  room -= std::min(room, fitted.size());
  std::string rest = row.rest;
  if (!fitted.empty() && !rest.empty()) rest.insert(0, kind == node_kind::leaf ? "  " : " ");
  rest.resize(cut_text(rest, room).size());
  if (!color || kind == node_kind::leaf) return fitted + rest;
  const int hue = kind == node_kind::mapping ? 4 : kind == node_kind::sequence ? 6 : 5;
  return fmt::format("\x1b[1;3{}m{}\x1b[0m{}", hue, fitted, rest);
}

}  // namespace

std::string draw_tree(const tree_spec& tree, std::span<const std::string> leaf_labels, const draw_options& options) {
  const auto nodes = tree.nodes();
  const std::vector<tree_row> rows = rows_of(tree, leaf_labels, options.max_lines);
  std::string text, prefix;  // `prefix`: of a row's children, three characters per level of the row
  for (const tree_row& row : rows) {
    std::string_view branch;
    if (row.depth > 0) {
      prefix.resize(3 * (row.depth - 1));
      branch = row.is_last ? "`- " : "|- ";
    }
    const std::size_t taken = prefix.size() + branch.size();
    const std::size_t room = options.max_columns > taken ? options.max_columns - taken : 0;
    text += fmt::format("{}{}{}\n", prefix, branch, row_text(row, nodes[row.node].kind, room, options.color));
    if (row.depth > 0) prefix += row.is_last ? "   " : "|  ";
  }
  if (rows.size() < nodes.size())
    text += fmt::format("and {}\n", detail::counted(nodes.size() - rows.size(), "more node"));
  return text;
}

}  // namespace shardmesh
