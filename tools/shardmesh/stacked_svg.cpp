// SPDX-License-Identifier: Apache-2.0
#include "stacked_svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

import shardmesh;
import shardmesh.core;

namespace tool {
namespace {

constexpr int left = 56, line = 28;
constexpr std::size_t longest_caption = 200;  // characters
// The same style as the pictures, which applies also outside them.
constexpr std::string_view style =
    "<style>.page{fill:#fff}text{fill:#222}.caption{font-size:13px;font-weight:600}"
    "@media(prefers-color-scheme:dark){.page{fill:#16181d}text{fill:#ddd}}</style>\n";

std::string text_in_svg(std::string_view text) {
  std::string safe;
  for (const char c : text) safe += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return safe;
}

// The first occurrence of that name belongs to the document itself.
int size_of(std::string_view svg, std::string_view name) {
  const std::size_t at = svg.find(name);
  return at == std::string_view::npos ? 0 : std::stoi(std::string(svg.substr(at + name.size(), 9)));
}

}  // namespace

std::string stacked_svg(const std::vector<captioned_picture>& pictures, const std::string& last) {
  constexpr std::string_view opening = "<svg ";
  std::string body;
  int top = 0, width = 2 * left;
  const auto add_line = [&](std::string_view given) {
    // Control bytes and invalid UTF-8 are escaped, so that any name of a tensor gives a valid document.
    const std::string text = shardmesh::shortened(shardmesh::escaped(given), longest_caption);
    body +=
        fmt::format("<text class=\"caption\" x=\"{}\" y=\"{}\">{}</text>\n", left, top + line - 4, text_in_svg(text));
    top += line;
    width = std::max(width, 2 * left + 9 * static_cast<int>(text.size()));
  };
  for (const captioned_picture& one : pictures) {
    add_line(one.caption);
    body += fmt::format("<svg y=\"{}\" ", top) + one.svg.substr(opening.size());
    top += size_of(one.svg, "height=\"");
    width = std::max(width, size_of(one.svg, "width=\""));
  }
  if (!last.empty()) add_line(last);
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n{2}<rect class=\"page\" width=\"100%\" "
      "height=\"100%\"/>\n{3}</svg>\n",
      width, top + line, style, body);
}

}  // namespace tool
