// SPDX-License-Identifier: Apache-2.0
// Tests pictures of layouts and plans, as text and SVG: whole texts for small ones, size limits for large ones.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>
import shardmesh.draw;

using namespace shardmesh;

namespace {
distribution grid(const char* mesh, const char* placements, const extents& shape) {
  return distribute(layout::make(parse_mesh(mesh).value(), parse_placements(placements).value(), shape).value())
      .value();
}
std::size_t longest_line(const std::string& text) {
  std::size_t longest = 0, begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i)
    if (i == text.size() || text[i] == '\n') longest = std::max(longest, i - begin), begin = i + 1;
  return longest;
}
}  // namespace

TEST_CASE("a matrix is drawn with its boxes, coordinates and owners") {
  CHECK(draw_layout(grid("2,2", "S(0),S(1)", {4, 6}), {.max_columns = 30}) ==
        "  0           3           6\n"
        "0 +-----------+-----------+\n"
        "  |     0     |     1     |\n"
        "2 +-----------+-----------+\n"
        "  |     2     |     3     |\n"
        "4 +-----------+-----------+\n");
}

TEST_CASE("whatever is distributed is drawn as its distribution") {
  const layout l = layout::make(parse_mesh("2").value(), parse_placements("S(0)").value(), {2}).value();
  const std::string picture =
      "0           1           2\n"
      "+-----------+-----------+\n"
      "|     0     |     1     |\n"
      "+-----------+-----------+\n";
  CHECK(draw_layout(l, {.max_columns = 30}).value() == draw_layout(grid("2", "S(0)", {2}), {.max_columns = 30}));
  CHECK(draw_layout(l, {.max_columns = 30}).value() == picture);
  CHECK(svg_layout(l).value() == svg_layout(grid("2", "S(0)", {2}), placement_lines(l.mesh(), l.placements())));
}

TEST_CASE("pictures label each mesh dimension with its size and its placement") {
  const auto lines = [](const char* mesh, const char* placements) {
    return placement_lines(parse_mesh(mesh).value(), parse_placements(placements).value());
  };
  CHECK(lines("dp=2,tp=1", "R,S(0)") == std::vector<std::string>{"dp (2 ranks): R", "tp (1 rank): S(0)"});
  CHECK(lines("3", "P(sum)") == std::vector<std::string>{"mesh dimension 0 (3 ranks): P(sum)"});
  const layout l = layout::make(parse_mesh("dp=2,tp=3").value(), parse_placements("S(0),R").value(), {4, 6}).value();
  const std::string picture = svg_layout(l).value();
  CHECK(picture.find(">shape [4, 6]</text>") != std::string::npos);
  CHECK(picture.find(">dp (2 ranks): S(0)</text>") != std::string::npos);
  CHECK(picture.find(">tp (3 ranks): R</text>") != std::string::npos);
}

TEST_CASE("no name of a mesh dimension, and no caption, is markup in a picture or widens it without end") {
  const std::vector<std::string> caption{"<script>&\x1b", std::string(5000, 'c') + "end"};
  const auto planned = plan({{grid("2", "S(0)", {4}), grid("2", "R", {4}), dtype::float32, dtype::float32}}).value();
  for (const std::string& picture : {svg_layout(grid("2", "R", {4}), caption), svg_plan(planned, caption)}) {
    INFO(picture);
    CHECK(picture.find("<script") == std::string::npos);
    CHECK(picture.find(">&lt;script&gt;&amp;\\x1b</text>") != std::string::npos);
    CHECK(picture.find("cend</text>") != std::string::npos);
    CHECK(picture.size() < 5000);
    CHECK(std::stoi(picture.substr(picture.find("width=\"") + 7)) < 1100);
  }
  const auto mesh = device_mesh::make({2}, {std::string(5000, 'm') + "<b>"}).value();
  CHECK(placement_lines(mesh, parse_placements("R").value()).front().size() < 100);
}

TEST_CASE("vectors, scalars, replicas, gaps and slices are drawn") {
  CHECK(draw_layout(grid("4", "R", {})) == "scalar on 0-3\n");
  CHECK(draw_layout(grid("3", "S(0)", {3})).find("0") != std::string::npos);
  CHECK(draw_layout(grid("2,2", "R,S(0)", {4, 4})).find("0,2") != std::string::npos);
  CHECK(draw_layout(grid("2", "S(0)", {0, 4})).find("no cells") != std::string::npos);
  const std::string slices = draw_layout(grid("16", "S(0)", {16, 2, 2}));
  CHECK(slices.find("slice [3:4)") != std::string::npos);
  CHECK(slices.find("and 8 more slices") != std::string::npos);
}

TEST_CASE("pictures stay within their width and take colour only when asked") {
  for (const char* placements : {"S(0),S(1)", "S(1),S(1)", "S(0),S(0)"}) {
    const std::string text = draw_layout(grid("32,32", placements, {4096, 4096}), {.max_columns = 80});
    CHECK(longest_line(text) <= 100);
    CHECK(text.find('\x1b') == std::string::npos);
  }
  CHECK(draw_layout(grid("2", "S(0)", {4, 4}), {.color = true}).find("\x1b[") != std::string::npos);
}

TEST_CASE("a plan is drawn as a matrix of bytes, and only its busiest pairs when it is large") {
  const auto planned =
      plan({{grid("2", "S(0)", {8, 8}), grid("2", "S(1)", {8, 8}), dtype::float32, dtype::float32}}).value();
  CHECK(draw_plan(planned).find("64 bytes") != std::string::npos);
  const auto large =
      plan({{grid("64", "S(0)", {64, 64}), grid("64", "S(1)", {64, 64}), dtype::float32, dtype::float32}}).value();
  CHECK(draw_plan(large).find("more pairs") != std::string::npos);
  const auto same = plan({{grid("2", "R", {8}), grid("2", "R", {8}), dtype::float32, dtype::float32}}).value();
  CHECK(draw_plan(same) == "nothing moves\n");
}

TEST_CASE("a plan between as many ranks as fit beside one another is a digit a pair") {
  const auto planned =
      plan({{grid("13", "S(0)", {26, 26}), grid("13", "S(1)", {26, 26}), dtype::float32, dtype::float32}}).value();
  std::string expected = "from\\to 0         1\n        0123456789012\n";
  for (int from = 0; from < 13; ++from) {
    std::string line(13, '9');
    line[static_cast<std::size_t>(from)] = '.';
    expected += (from < 10 ? "      " : "     ") + std::to_string(from) + " " + line + "\n";
  }
  expected += "9 is 16 bytes, 1 a ninth of it or less, . nothing\n";
  const std::string drawn = draw_plan(planned);
  CHECK(drawn.substr(0, expected.size()) == expected);
  CHECK(drawn.substr(expected.size(), 25) == "     0 -> 1      16 bytes");
  CHECK(drawn.ends_with("and 140 more pairs\n"));
}

TEST_CASE("a plan of sixty-four ranks fits into a hundred columns, in colours without another letter") {
  const auto planned =
      plan({{grid("64", "S(0)", {64, 64}), grid("8,8", "S(0),S(1)", {64, 64}), dtype::float32, dtype::float32}})
          .value();
  const std::string plain = draw_plan(planned);
  CHECK(longest_line(plain) == 72);
  CHECK(plain.find("     63 ........................................................9999999.\n") != std::string::npos);
  std::string colored = draw_plan(planned, {.color = true});
  CHECK(colored != plain);
  for (std::size_t at = colored.find('\x1b'); at != std::string::npos; at = colored.find('\x1b'))
    colored.erase(at, colored.find('m', at) + 1 - at);
  CHECK(colored == plain);
}

TEST_CASE("boxes of an SVG picture say where they are and who holds them, replicas once") {
  const std::string picture = svg_layout(grid("2,2", "R,S(0)", {4, 6}));
  CHECK(picture.find("<title>[0:2, 0:6) on 0,2</title>") != std::string::npos);
  CHECK(picture.find("<title>[2:4, 0:6) on 1,3</title>") != std::string::npos);
  CHECK(picture.find("<title>", picture.rfind("<title>") + 1) == std::string::npos);
  CHECK(picture.find("prefers-color-scheme:dark") != std::string::npos);
}

TEST_CASE("SVG pictures have one rectangle per box and per pair") {
  const auto count = [](const std::string& text, const std::string& what) {
    std::size_t found = 0;
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
    return found;
  };
  CHECK(count(svg_layout(grid("2,2", "S(0),S(1)", {4, 6})), "fill=\"hsl") == 4);
  const auto planned =
      plan({{grid("3", "S(0)", {9, 9}), grid("3", "S(1)", {9, 9}), dtype::float32, dtype::float32}}).value();
  CHECK(count(svg_plan(planned), "<title>") == 6);
}
