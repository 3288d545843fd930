// SPDX-License-Identifier: Apache-2.0
// Parses drawings, both text maps and SVG maps, into the holders of each cell. Independent of the drawing code. Include
// before imports.
#pragma once
#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace drawn_map {

using holders = std::set<std::int32_t>;

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// Parses "0,2,5-7" and ".". A label that ends in ".." is an error: it does not name every holder.
inline holders holders_of(const std::string& label) {
  holders all;
  if (label == ".") return all;
  std::istringstream in(label);
  for (std::string part; std::getline(in, part, ',');) {
    const std::size_t dash = part.find('-');
    std::size_t used = 0;
    const int first = std::stoi(part, &used);
    const int last = dash == std::string::npos ? first : std::stoi(part.substr(dash + 1));
    if (dash == std::string::npos ? used != part.size() : used != dash) throw std::invalid_argument(label);
    for (int owner = first; owner <= last; ++owner) all.insert(owner);
  }
  return all;
}

/// Removes ANSI colours. `colors` receives the colour number, or 0, of each remaining character.
inline std::string without_colors(const std::string& text, std::vector<int>& colors) {
  std::string plain;
  int current = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b') {
      plain += text[i];
      colors.push_back(current);
      continue;
    }
    const std::size_t end = text.find('m', i);
    const std::string code = text.substr(i + 2, end - i - 2);
    current = code == "0" ? 0 : std::stoi(code.substr(code.find(';') + 1));
    i = end;
  }
  return plain;
}

/// One text map: the coordinates that it names, and the label of each rectangle between neighbouring coordinates.
struct map {
  std::vector<std::int64_t> rows, columns;
  std::vector<std::vector<std::string>> labels;  // [row interval][column interval]
};

/// The label of the region, bounded by lines, that contains this character.
inline std::string label_around(const std::vector<std::string>& lines, std::size_t line, std::size_t column) {
  const auto at = [&](std::size_t y, std::size_t x) { return x < lines[y].size() ? lines[y][x] : ' '; };
  const auto is_line = [&](std::size_t y, std::size_t x) {
    if (at(y, x) == '+' || at(y, x) == '|') return true;
    return at(y, x) == '-' && !(std::isdigit(at(y, x - 1)) != 0 && std::isdigit(at(y, x + 1)) != 0);
  };
  std::set<std::pair<std::size_t, std::size_t>> seen{{line, column}};
  std::vector<std::pair<std::size_t, std::size_t>> open{{line, column}};
  while (!open.empty()) {
    const auto [y, x] = open.back();
    open.pop_back();
    for (const auto& next : {std::pair{y, x + 1}, {y, x - 1}, {y + 1, x}, {y - 1, x}})
      if (!is_line(next.first, next.second) && seen.insert(next).second) open.push_back(next);
  }
  std::string label;
  for (const auto& [y, x] : seen)
    if (at(y, x) != ' ') label += at(y, x);
  return label;
}

/// Reads a map that starts at its line of column coordinates. `begin` is advanced to the line after the map.
inline map read_map(const std::vector<std::string>& lines, std::size_t& begin) {
  map read;
  std::vector<std::size_t> columns_at, rows_at;
  const std::string& heading = lines.at(begin);
  for (std::size_t x = 0; x < heading.size(); ++x)
    if (heading[x] != ' ' && (x == 0 || heading[x - 1] == ' ')) {
      read.columns.push_back(std::stoll(heading.substr(x)));
      columns_at.push_back(x);
    }
  std::size_t y = begin + 1;
  for (; y < lines.size() && columns_at.front() < lines[y].size(); ++y) {
    const char first = lines[y][columns_at.front()];
    if (first != '+' && first != '|') break;
    if ((y - begin) % 2 == 0) continue;
    rows_at.push_back(y);
    read.rows.push_back(columns_at.front() == 0 ? static_cast<std::int64_t>(rows_at.size()) - 1 : std::stoll(lines[y]));
  }
  for (std::size_t row = 0; row + 1 < rows_at.size(); ++row) {
    read.labels.emplace_back();
    for (const std::size_t x : columns_at)
      if (x != columns_at.back()) read.labels.back().push_back(label_around(lines, rows_at[row] + 1, x + 1));
  }
  begin = y;
  return read;
}

/// A rectangle of an SVG picture that has a title.
struct rectangle {
  double x = 0, y = 0, width = 0, height = 0;
  std::string fill, title, slice;
};

inline std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const std::size_t from = text.find(begin);
  if (from == std::string::npos) return "";
  return text.substr(from + begin.size(), text.find(end, from + begin.size()) - from - begin.size());
}

/// Every rectangle with a title, and the last slice named above it.
inline std::vector<rectangle> rectangles_of(const std::string& svg) {
  std::vector<rectangle> all;
  std::string slice;
  for (const std::string& line : lines_of(svg)) {
    if (line.find("class=\"name\"") != std::string::npos && line.find(">[") != std::string::npos)
      slice = between(line, "\">", "</text>");
    if (line.find("<title>") == std::string::npos) continue;
    const auto number = [&](const char* name) {
      return std::stod(between(line, std::string(" ") + name + "=\"", "\""));
    };
    all.push_back({number("x"), number("y"), number("width"), number("height"), between(line, "fill=\"", "\""),
                   between(line, "<title>", "</title>"), slice});
  }
  return all;
}

}  // namespace drawn_map
