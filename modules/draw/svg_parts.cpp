// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <string>
#include <string_view>
module shardmesh.draw;

import :svg_parts;

namespace shardmesh {
namespace {

// Readable on light and dark pages: boxes and the text on them keep their own colours.
constexpr std::string_view shared_style =
    ".page{fill:#fff}text{fill:#222}.edge{font-size:10px;fill:#666}.on{fill:#111}.light{fill:#fff}"
    ".frame{fill:none;stroke:#444}@media(prefers-color-scheme:dark){.page{fill:#16181d}text{fill:#ddd}"
    ".edge{fill:#999}.on{fill:#111}.light{fill:#fff}.frame{stroke:#aaa}}";

}  // namespace

std::string svg_document(double width, double height, const std::string& body, std::string_view style) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<style>{2}{3}</style>\n<rect class=\"page\" width=\"100%\" "
      "height=\"100%\"/>\n{4}</svg>\n",
      width, height, shared_style, style, body);
}

std::string svg_text_at(double x, double y, std::string_view anchor, const std::string& text, std::string_view name) {
  return fmt::format("<text class=\"{}\" x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"{}\">{}</text>\n", name, x, y, anchor,
                     text);
}

std::string svg_text(std::string_view text) {
  std::string safe;
  for (const char c : escaped(text))
    safe += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return safe;
}

}  // namespace shardmesh
