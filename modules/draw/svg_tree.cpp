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

import :svg_parts;
import :tree_rows;

namespace shardmesh {
namespace {

// `column`: the approximate width of a character
constexpr double margin = 16, row_height = 18, indent = 18, column = 7;

constexpr std::string_view tree_style =
    ".branch{fill:none;stroke:#bbb}.mapping{fill:#1f5fc4}.sequence{fill:#0b7a75}.tuple{fill:#9b3fb5}.rest{fill:#666}"
    "@media(prefers-color-scheme:dark){.branch{stroke:#555}.mapping{fill:#7fb0ff}.sequence{fill:#5fd0ca}"
    ".tuple{fill:#d99cec}.rest{fill:#999}}";

double left_of(const tree_row& row) {
  return margin + indent * static_cast<double>(row.depth);
}

// The baseline of the row's text.
double base_of(std::size_t row) {
  return margin + row_height * static_cast<double>(row) + 12;
}

std::string_view class_of(node_kind kind) {
  switch (kind) {
    case node_kind::mapping:
      return "mapping";
    case node_kind::sequence:
      return "sequence";
    case node_kind::tuple:
      return "tuple";
    case node_kind::leaf:
      break;
  }
  return "leaf";
}

std::string span_of(std::string_view name, std::string_view text) {
  return text.empty() ? "" : fmt::format("<tspan class=\"{}\">{}</tspan>", name, svg_text(text));
}

}  // namespace

std::string svg_tree(const tree_spec& tree, std::span<const std::string> leaf_labels, const draw_options& options) {
  const auto nodes = tree.nodes();
  const std::vector<tree_row> rows = rows_of(tree, leaf_labels, options.max_lines);
  std::string body;
  double width = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const tree_row& row = rows[i];
    const double x = left_of(row), y = base_of(i);
    if (row.depth > 0)
      body += fmt::format("<path class=\"branch\" d=\"M{:.0f} {:.0f}V{:.0f}H{:.0f}\"/>\n",
                          left_of(rows[row.parent]) + 5, base_of(row.parent) + 5, y - 4, x - 3);
    const std::string key = shortened(row.key, options.max_columns);
    const std::string_view rest = cut_text(row.rest, options.max_columns - std::min(options.max_columns, key.size()));
    const std::string_view gap = key.empty() || rest.empty() ? "" : "&#160; ";
    body += svg_text_at(x, y, "start",
                        span_of(class_of(nodes[row.node].kind), key) + std::string(gap) + span_of("rest", rest));
    width = std::max(width, x + column * static_cast<double>(key.size() + rest.size() + 2));
  }
  if (rows.size() < nodes.size()) {
    body += svg_text_at(margin, base_of(rows.size()), "start",
                        fmt::format("and {}", detail::counted(nodes.size() - rows.size(), "more node")), "edge");
    width = std::max(width, margin + 24 * column);
  }
  return svg_document(width + margin, base_of(rows.size() + 1), body, tree_style);
}

}  // namespace shardmesh
