// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <range/v3/action/push_back.hpp>
#include <range/v3/action/sort.hpp>
#include <range/v3/action/unique.hpp>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/drop.hpp>
#include <range/v3/view/stride.hpp>
#include <range/v3/view/take.hpp>
#include <range/v3/view/zip.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>
module shardmesh.draw;

import :scene;

namespace shardmesh {
namespace views = ranges::views;
namespace {

// The positions of edges along one axis of the picture: `at[i]` is the line or column of characters for `edges[i]`.
struct axis {
  std::vector<std::int64_t> edges;
  std::vector<std::size_t> at;

  std::size_t interval(std::int64_t coordinate) const {
    const auto next = std::upper_bound(edges.begin(), edges.end(), coordinate);
    return static_cast<std::size_t>(next - edges.begin()) - 1;
  }
};

constexpr std::size_t most_rows = 40;

std::size_t count_of(std::vector<std::int64_t> edges) {
  edges |= ranges::actions::sort | ranges::actions::unique;
  return edges.size();
}

// At most `most` intervals between edges: every k-th edge and the last.
axis make_axis(std::vector<std::int64_t> edges, std::size_t most) {
  edges |= ranges::actions::sort | ranges::actions::unique;
  const std::size_t intervals = edges.size() - 1, step = (intervals + most - 1) / most;
  axis made{edges | views::take(intervals) | views::stride(step) | ranges::to<std::vector>(), {}};
  made.edges.push_back(edges.back());
  return made;
}

class canvas {
 public:
  canvas(std::size_t lines, std::size_t columns)
      : cells_(lines, std::string(columns, ' ')), colors_(lines, std::vector<int>(columns, -1)) {}

  void rectangle(std::size_t top, std::size_t left, std::size_t bottom, std::size_t right) {
    for (std::size_t x = left; x <= right; ++x) horizontal(top, x), horizontal(bottom, x);
    for (std::size_t y = top; y <= bottom; ++y) vertical(y, left), vertical(y, right);
    for (const std::size_t y : {top, bottom})
      for (const std::size_t x : {left, right}) cells_[y][x] = '+';
  }
  // Precondition: the text fits between left and right.
  void label(std::size_t top, std::size_t left, std::size_t bottom, std::size_t right, const std::string& text,
             int color) {
    const std::size_t y = (top + bottom) / 2;
    const std::size_t room = right - left - 1;
    const std::size_t x = left + 1 + (room - text.size()) / 2;
    cells_[y].replace(x, text.size(), text);
    for (std::size_t i = 0; i < text.size(); ++i) colors_[y][x + i] = color;
  }
  std::string line(std::size_t y) const {
    std::string text;
    int current = -1;
    for (std::size_t x = 0; x < cells_[y].size(); ++x) {
      if (colors_[y][x] != current) {
        current = colors_[y][x];
        text += current < 0 ? "\x1b[0m" : fmt::format("\x1b[1;3{}m", 1 + current % 6);
      }
      text += cells_[y][x];
    }
    if (current >= 0) text += "\x1b[0m";
    while (!text.empty() && text.back() == ' ') text.pop_back();
    return text;
  }
  std::size_t lines() const { return cells_.size(); }

 private:
  void horizontal(std::size_t y, std::size_t x) {
    if (cells_[y][x] != '+') cells_[y][x] = cells_[y][x] == '|' ? '+' : '-';
  }
  void vertical(std::size_t y, std::size_t x) {
    if (cells_[y][x] != '+') cells_[y][x] = cells_[y][x] == '-' ? '+' : '|';
  }
  std::vector<std::string> cells_;
  std::vector<std::vector<int>> colors_;
};

// A rectangle of the picture. It is one tile, an area without a tile, an overlap of tiles, or several tiles that are
// too small to draw separately.
struct drawn_tile {
  std::size_t top, left, bottom, right;
  std::vector<owner_id> owners;
};

constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

std::string label_of(const drawn_tile& t) {
  return owner_label(t.owners, t.right - t.left - 1);
}

// The tiles in each cell of the grid of row and column intervals, in the order of the slice.
std::vector<std::vector<std::size_t>> tiles_by_cell(const slice& s, const axis& rows, const axis& columns) {
  const std::size_t width = columns.edges.size() - 1;
  std::vector<std::vector<std::size_t>> cells((rows.edges.size() - 1) * width);
  for (std::size_t i = 0; i < s.tiles.size(); ++i) {
    const tile& t = s.tiles[i];
    for (std::size_t y = rows.interval(t.row); rows.edges[y] < t.row + t.rows; ++y)
      for (std::size_t x = columns.interval(t.column); columns.edges[x] < t.column + t.columns; ++x)
        cells[y * width + x].push_back(i);
  }
  return cells;
}

std::vector<owner_id> owners_of(const slice& s, const std::vector<std::size_t>& tiles) {
  std::vector<owner_id> owners;
  for (const std::size_t i : tiles) owners |= ranges::actions::push_back(s.tiles[i].owners);
  return std::move(owners) | ranges::actions::sort | ranges::actions::unique;
}

// Joins cells with the same tiles to rectangles, as wide and then as high as possible, so that no two overlap.
std::vector<drawn_tile> arrange(const slice& s, const axis& rows, const axis& columns) {
  const std::size_t height = rows.edges.size() - 1, width = columns.edges.size() - 1;
  const auto cells = tiles_by_cell(s, rows, columns);
  std::vector<bool> is_taken(cells.size());
  std::vector<drawn_tile> drawn;
  for (std::size_t first = 0; first < cells.size(); ++first) {
    if (is_taken[first]) continue;
    const std::size_t top = first / width, left = first % width;
    const auto joins = [&](std::size_t y, std::size_t x) {
      return !is_taken[y * width + x] && cells[y * width + x] == cells[first];
    };
    std::size_t right = left + 1, bottom = top + 1;
    while (right < width && joins(top, right)) ++right;
    const auto row_joins = [&](std::size_t y) {
      for (std::size_t x = left; x < right; ++x)
        if (!joins(y, x)) return false;
      return true;
    };
    while (bottom < height && row_joins(bottom)) ++bottom;
    for (std::size_t y = top; y < bottom; ++y)
      for (std::size_t x = left; x < right; ++x) is_taken[y * width + x] = true;
    drawn.push_back({rows.at[top], columns.at[left], rows.at[bottom], columns.at[right], owners_of(s, cells[first])});
  }
  return drawn;
}

// Lists all owners of each label that was cut. Tiles of different widths cut the same owners differently, so each cut
// label is listed.
std::string legend_of(const std::vector<drawn_tile>& drawn) {
  constexpr std::size_t most = 64;
  std::set<std::pair<std::string, std::vector<owner_id>>> listed;
  std::string text;
  for (const drawn_tile& t : drawn) {
    const std::string label = label_of(t), all = owner_label(t.owners, unlimited);
    if (label == all || !listed.emplace(label, t.owners).second) continue;
    if (listed.size() <= most) text += fmt::format("{} is {}\n", label, all);
  }
  return text + (listed.size() > most ? fmt::format("and {} more\n", listed.size() - most) : "");
}

std::string draw_slice(const slice& s, const scene& all, const draw_options& options) {
  std::vector<std::int64_t> row_edges{0, all.rows}, column_edges{0, all.columns};
  std::size_t label = 1;
  for (const tile& t : s.tiles) {
    row_edges.insert(row_edges.end(), {t.row, t.row + t.rows});
    column_edges.insert(column_edges.end(), {t.column, t.column + t.columns});
    label = std::max(label, owner_label(t.owners, 12).size());
  }
  const std::string margin_text = std::to_string(all.rows);
  const std::size_t margin = all.rows > 1 ? margin_text.size() + 1 : 0;
  const std::size_t room = std::max<std::size_t>(options.max_columns, 30) - margin - 1;
  const std::size_t intervals = count_of(row_edges) + count_of(column_edges);
  axis columns = make_axis(std::move(column_edges), std::max<std::size_t>(1, room / (label + 3)));
  axis rows = make_axis(std::move(row_edges), most_rows);
  const bool is_exact = rows.edges.size() + columns.edges.size() == intervals;
  // Columns get width in proportion to their cells, but at least that of a label.
  const std::size_t least = label + 3;
  const std::size_t spare = room - std::min(room, least * (columns.edges.size() - 1));
  const std::size_t wide = std::min<std::size_t>(spare, 8 * (columns.edges.size() - 1));
  std::size_t x = 0;
  columns.at.push_back(0);
  for (const auto& [begin, end] : views::zip(columns.edges, columns.edges | views::drop(1))) {
    const double share = static_cast<double>(end - begin) / static_cast<double>(all.columns);
    x += least + static_cast<std::size_t>(share * static_cast<double>(wide));
    columns.at.push_back(x);
  }
  for (std::size_t i = 0; i < rows.edges.size(); ++i) rows.at.push_back(2 * i);

  canvas picture(rows.at.back() + 1, columns.at.back() + 1);
  const std::vector<drawn_tile> drawn = arrange(s, rows, columns);
  for (const drawn_tile& t : drawn) picture.rectangle(t.top, t.left, t.bottom, t.right);
  for (const drawn_tile& t : drawn)
    picture.label(t.top, t.left, t.bottom, t.right, label_of(t),
                  options.color && !t.owners.empty() ? t.owners.front() : -1);

  // Writes column coordinates above and row coordinates to the left, at the edges.
  std::string heading(columns.at.back() + 24, ' ');
  std::size_t free = 0;
  for (const auto& [edge, at] : views::zip(columns.edges, columns.at)) {
    const std::string number = std::to_string(edge);
    if (at < free) continue;
    heading.replace(at, number.size(), number);
    free = at + number.size() + 1;
  }
  heading.erase(heading.find_last_not_of(' ') + 1);
  std::string text = std::string(margin, ' ') + heading + "\n";
  for (std::size_t y = 0; y < picture.lines(); ++y) {
    const bool edge = y % 2 == 0 && margin > 0;
    text += fmt::format("{:<{}}", edge ? std::to_string(rows.edges[y / 2]) : "", margin) + picture.line(y) + "\n";
  }
  return is_exact ? text + legend_of(drawn) : text;
}

}  // namespace

std::string draw_layout(const distribution& d, const draw_options& options) {
  const scene all = make_scene(d, options.max_slices);
  if (all.slice_count == 0 || all.rows == 0 || all.columns == 0) return "  no cells\n";
  std::string text;
  for (const slice& s : all.slices) {
    if (all.outer_rank > 0) text += fmt::format("slice {}\n", to_string(s.outer));
    if (d.global_shape().rank() == 0) {
      text += fmt::format("scalar on {}\n",
                          s.tiles.empty() ? "." : owner_label(s.tiles.front().owners, options.max_columns));
      continue;
    }
    text += draw_slice(s, all, options);
  }
  if (all.slice_count > static_cast<std::int64_t>(all.slices.size()))
    text += fmt::format("and {}\n",
                        detail::counted(all.slice_count - static_cast<std::int64_t>(all.slices.size()), "more slice"));
  return text;
}

}  // namespace shardmesh
