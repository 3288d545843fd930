// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.draw;

import :scene;
import :svg_parts;

namespace shardmesh {
namespace {

constexpr std::size_t max_slices = 64;
constexpr double map_width = 480, map_height = 320, gap = 56, line_height = 16;

// Lines of text as SVG, with the space that they take.
struct caption_lines {
  std::string body;
  double height = 0, width = 0;
};

// Draws lines of text below each other, from `top` down. They may be of any length and contain any bytes.
caption_lines caption_at(double top, std::span<const std::string> lines) {
  constexpr std::size_t longest = 120;
  constexpr double character = 7;  // the approximate width
  caption_lines made;
  for (const std::string& line : lines) {
    const std::string text = shortened(escaped(line), longest);
    made.body += svg_text_at(gap, top + made.height, "start", svg_text(text), "caption");
    made.height += line_height;
    made.width = std::max(made.width, character * static_cast<double>(text.size()));
  }
  return made;
}

std::string frame_at(double x, double y, double width, double height) {
  return fmt::format("<rect class=\"frame\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\"/>\n", x, y,
                     width, height);
}

// The golden angle: neighbouring owners get very different colours.
std::string color_of(owner_id owner) {
  return fmt::format("hsl({:.0f},60%,75%)", std::fmod(static_cast<double>(owner) * 137.508, 360.0));
}

double scaled(std::int64_t coordinate, std::int64_t size, double length) {
  return size == 0 ? 0 : static_cast<double>(coordinate) / static_cast<double>(size) * length;
}

// Numbers at the edges of boxes. Leaves out a number that would overlap the one before it.
std::string column_edges(const std::set<std::int64_t>& edges, const scene& all, double top) {
  std::string body;
  double free = 0;
  for (const std::int64_t edge : edges) {
    const std::string number = std::to_string(edge);
    const double x = gap + scaled(edge, all.columns, map_width), half = 3.0 * static_cast<double>(number.size());
    if (x - half < free) continue;
    free = x + half + 6;
    body += svg_text_at(x, top - 4, "middle", number, "edge");
  }
  return body;
}

std::string row_edges(const std::set<std::int64_t>& edges, const scene& all, double top) {
  std::string body;
  double free = 0;
  for (const std::int64_t edge : edges) {
    const double y = top + scaled(edge, all.rows, map_height);
    if (y < free) continue;
    free = y + 11;
    body += svg_text_at(gap - 5, y + 4, "end", std::to_string(edge), "edge");
  }
  return body;
}

// The tooltip of a box: its range and its owners.
std::string hover_text(const tile& t, const scene& all) {
  const std::string rows = all.rows > 1 ? fmt::format("{}:{}, ", t.row, t.row + t.rows) : "";
  return fmt::format("[{}{}:{}) on {}", rows, t.column, t.column + t.columns, owner_label(t.owners, 400));
}

std::string map_of(const slice& s, const scene& all, double top) {
  std::string body;
  std::set<std::int64_t> rows{0, all.rows}, columns{0, all.columns};
  if (all.outer_rank > 0) body += svg_text_at(gap, top - 20, "start", to_string(s.outer));
  for (const tile& t : s.tiles) {
    const double x = gap + scaled(t.column, all.columns, map_width), y = top + scaled(t.row, all.rows, map_height);
    const double width = scaled(t.columns, all.columns, map_width), height = scaled(t.rows, all.rows, map_height);
    body += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\" "
        "stroke=\"#222\"><title>{}</title></rect>\n",
        x, y, width, height, color_of(t.owners.front()), hover_text(t, all));
    rows.insert({t.row, t.row + t.rows});
    columns.insert({t.column, t.column + t.columns});
    const std::string label = owner_label(t.owners, 16);
    if (height >= 12 && width >= 7.0 * static_cast<double>(label.size()))
      body += svg_text_at(x + width / 2, y + height / 2 + 4, "middle", label, "on");
  }
  body += column_edges(columns, all, top);
  if (all.rows > 1) body += row_edges(rows, all, top);
  return body + frame_at(gap, top, map_width, map_height);
}

}  // namespace

std::vector<std::string> placement_lines(const device_mesh& mesh, std::span<const placement> placements) {
  constexpr std::size_t longest_name = 60;
  std::vector<std::string> lines;
  for (std::size_t m = 0; m < mesh.rank(); ++m) {
    const std::string label =
        mesh.names().empty() ? fmt::format("mesh dimension {}", m) : shortened(escaped(mesh.names()[m]), longest_name);
    lines.push_back(
        fmt::format("{} ({}): {}", label, detail::counted(mesh.sizes()[m], "rank"), to_string(placements[m])));
  }
  return lines;
}

std::string svg_layout(const distribution& d, std::span<const std::string> caption) {
  const scene all = make_scene(d, max_slices);
  const caption_lines lines = caption_at(20 + line_height, caption);
  std::string body = svg_text_at(gap, 20, "start", "shape " + to_string(d.global_shape())) + lines.body;
  double top = gap + 28 + lines.height;
  for (const slice& s : all.slices) {
    body += map_of(s, all, top);
    top += map_height + gap;
  }
  if (all.slice_count > static_cast<std::int64_t>(all.slices.size())) {
    body += svg_text_at(
        gap, top, "start",
        fmt::format("and {}",
                    detail::counted(all.slice_count - static_cast<std::int64_t>(all.slices.size()), "more slice")));
    top += gap;
  }
  return svg_document(std::max(map_width, lines.width) + 2 * gap, top, body);
}

result<std::string> svg_layout(const layout& l) {
  const auto held = distribute(l);
  if (!held) return held.error();
  return svg_layout(*held, placement_lines(l.mesh(), l.placements()));
}

std::string svg_plan(const transfer_plan& plan, std::span<const std::string> caption) {
  const auto traffic = traffic_of(plan);
  owner_id owners = 1;
  std::int64_t most = 1;
  for (const tensor_transfer& t : plan.transfers()) owners = std::max({owners, t.from.owners(), t.to.owners()});
  for (const auto& [pair, bytes] : traffic) most = std::max(most, bytes);
  const double cell = std::clamp(640.0 / owners, 2.0, 72.0), size = cell * owners;
  std::string body = svg_text_at(
      gap, 20, "start",
      fmt::format("{} move, at least {}", human_bytes(plan.bytes_moved()), human_bytes(plan.lower_bound())));
  const caption_lines lines = caption_at(20 + line_height, caption);
  body += lines.body;
  const double top = gap + 28 + lines.height;
  body += svg_text_at(gap + size / 2, top - 22, "middle", "receiver", "edge");
  body += svg_text_at(gap, top - 22, "end", "sender", "edge");
  for (const auto& [pair, bytes] : traffic) {
    const double x = gap + cell * pair.second, y = top + cell * pair.first;
    const double share = static_cast<double>(bytes) / static_cast<double>(most);
    body += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"hsl(215,70%,{:.0f}%)\"><title>{} to "
        "{}: {}</title></rect>\n",
        x, y, cell, cell, 92 - 52 * share, pair.first, pair.second, human_bytes(bytes));
    if (cell >= 60)
      body += svg_text_at(x + cell / 2, y + cell / 2 + 4, "middle", human_bytes(bytes), share > 0.6 ? "light" : "on");
  }
  if (cell >= 10)
    for (owner_id owner = 0; owner < owners; ++owner) {
      body += svg_text_at(gap - 6, top + cell * owner + cell / 2 + 4, "end", std::to_string(owner), "edge");
      body += svg_text_at(gap + cell * owner + cell / 2, top - 6, "middle", std::to_string(owner), "edge");
    }
  body += frame_at(gap, top, size, size);
  return svg_document(std::max(size, lines.width) + 2 * gap, top + size + gap, body);
}

}  // namespace shardmesh
