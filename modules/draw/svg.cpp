// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>
module shardmesh.draw;

import :scene;

namespace shardmesh {
namespace {

constexpr std::size_t max_slices = 64;
constexpr double map_width = 480, map_height = 320, gap = 40;

std::string document(double width, double height, const std::string& body) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"white\"/>\n{2}</svg>\n",
      width, height, body);
}

std::string text_at(double x, double y, const std::string& anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, text);
}

// Neighbouring owners get colours far apart: the golden angle.
std::string color_of(owner_id owner) {
  return fmt::format("hsl({:.0f},60%,75%)", std::fmod(static_cast<double>(owner) * 137.508, 360.0));
}

double scaled(std::int64_t coordinate, std::int64_t size, double length) {
  return size == 0 ? 0 : static_cast<double>(coordinate) / static_cast<double>(size) * length;
}

std::string map_of(const slice& s, const scene& all, double top) {
  std::string body;
  if (all.outer_rank > 0) body += text_at(gap, top - 8, "start", to_string(s.outer));
  for (const tile& t : s.tiles) {
    const double x = gap + scaled(t.column, all.columns, map_width), y = top + scaled(t.row, all.rows, map_height);
    const double width = scaled(t.columns, all.columns, map_width), height = scaled(t.rows, all.rows, map_height);
    body += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\" stroke=\"black\"/>\n", x, y,
        width, height, color_of(t.owners.front()));
    const std::string label = owner_label(t.owners, 16);
    if (height >= 12 && width >= 7.0 * static_cast<double>(label.size()))
      body += text_at(x + width / 2, y + height / 2 + 4, "middle", label);
  }
  return body +
         fmt::format(
             "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"none\" stroke=\"black\"/>\n",
             gap, top, map_width, map_height);
}

}  // namespace

std::string svg_layout(const distribution& d) {
  const scene all = make_scene(d, max_slices);
  std::string body = text_at(gap, 20, "start", "shape " + to_string(d.global_shape()));
  double top = gap + 20;
  for (const slice& s : all.slices) {
    body += map_of(s, all, top);
    top += map_height + gap;
  }
  if (all.slice_count > static_cast<std::int64_t>(all.slices.size())) {
    body += text_at(gap, top, "start",
                    fmt::format("and {} more slices", all.slice_count - static_cast<std::int64_t>(all.slices.size())));
    top += gap;
  }
  return document(map_width + 2 * gap, top, body);
}

std::string svg_plan(const transfer_plan& plan) {
  const auto traffic = traffic_of(plan);
  owner_id owners = 1;
  std::int64_t most = 1;
  for (const tensor_transfer& t : plan.transfers()) owners = std::max({owners, t.from.owners(), t.to.owners()});
  for (const auto& [pair, bytes] : traffic) most = std::max(most, bytes);
  const double cell = std::clamp(640.0 / owners, 2.0, 48.0), size = cell * owners;
  std::string body =
      text_at(gap, 20, "start",
              fmt::format("{} move, at least {}", human_bytes(plan.bytes_moved()), human_bytes(plan.lower_bound())));
  const double top = gap + 20;
  for (const auto& [pair, bytes] : traffic) {
    const double x = gap + cell * pair.second, y = top + cell * pair.first;
    body += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"hsl(215,70%,{:.0f}%)\"><title>{} to "
        "{}: {}</title></rect>\n",
        x, y, cell, cell, 92 - 52 * static_cast<double>(bytes) / static_cast<double>(most), pair.first, pair.second,
        human_bytes(bytes));
  }
  if (cell >= 14)
    for (owner_id owner = 0; owner < owners; ++owner) {
      body += text_at(gap - 6, top + cell * owner + cell / 2 + 4, "end", std::to_string(owner));
      body += text_at(gap + cell * owner + cell / 2, top - 6, "middle", std::to_string(owner));
    }
  body += fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"none\" stroke=\"black\"/>\n", gap, top,
      size, size);
  return document(size + 2 * gap, top + size + gap, body);
}

}  // namespace shardmesh
