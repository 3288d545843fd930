// SPDX-License-Identifier: Apache-2.0
// Tests drawings of trees: lines, limits, escapes, and colours.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <string>
#include <vector>
import shardmesh.draw;

using namespace shardmesh;

namespace {

tree_spec example() {
  tree_builder b;
  b.begin(node_kind::mapping);
  b.begin(node_kind::mapping, "model");
  b.leaf("weight");
  b.leaf("a.b");
  b.leaf(7);
  b.end();
  b.begin(node_kind::tuple, "betas");
  b.leaf();
  b.leaf();
  b.end();
  b.begin(node_kind::sequence, "empty");
  b.end();
  b.end();
  return b.finish().value();
}

const std::vector<std::string> labels{"float32 [2, 3]", "5", "True", "0.9", "0.99"};

}  // namespace

TEST_CASE("a tree is drawn one line per node, with keys, sizes and labels") {
  CHECK(draw_tree(example(), labels) ==
        "{3}\n"
        "|- model {3}\n"
        "|  |- weight  float32 [2, 3]\n"
        "|  |- [\"a.b\"]  5\n"
        "|  `- [7]  True\n"
        "|- betas (2)\n"
        "|  |- [0]  0.9\n"
        "|  `- [1]  0.99\n"
        "`- empty []\n");
  CHECK(draw_tree(tree_spec()).empty());
}

TEST_CASE("a tree is drawn without labels, and a leaf alone") {
  CHECK(draw_tree(example()).find("|  |- weight\n") != std::string::npos);
  tree_builder b;
  b.leaf();
  CHECK(draw_tree(b.finish().value(), std::vector<std::string>{"7"}) == "7\n");
}

TEST_CASE("a drawing of a tree ends after the lines allowed and counts the rest") {
  CHECK(draw_tree(example(), labels, {.max_lines = 3}) ==
        "{3}\n"
        "|- model {3}\n"
        "|  |- weight  float32 [2, 3]\n"
        "and 6 more nodes\n");
  tree_builder b;
  constexpr int depth = 100'000;
  for (int i = 0; i < depth; ++i) b.begin(node_kind::sequence);
  b.leaf();
  for (int i = 0; i < depth; ++i) b.end();
  const std::string deep = draw_tree(b.finish().value());
  CHECK(std::count(deep.begin(), deep.end(), '\n') == 201);
  CHECK(deep.ends_with("and 99801 more nodes\n"));
}

TEST_CASE("untrusted keys and labels of a tree reach no terminal unescaped, and long ones are cut") {
  tree_builder b;
  b.begin(node_kind::mapping);
  b.leaf("bad\x1b[2J");
  b.leaf(std::string(60, 'k'));
  b.leaf("\xc3\xa4\xc3\xa4\xc3\xa4");
  b.end();
  const std::string text =
      draw_tree(b.finish().value(), std::vector<std::string>{"one\ntwo", "x", "label"}, {.max_columns = 30});
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find("bad\\x1b[2J\"]") != std::string::npos);
  CHECK(std::count(text.begin(), text.end(), '\n') == 4);
  CHECK(text.find("|- " + std::string(8, 'k') + "..." + std::string(16, 'k') + "\n") != std::string::npos);
  CHECK(text.find("[\"\xc3\xa4\xc3\xa4\xc3\xa4\"]  label\n") != std::string::npos);
}

TEST_CASE("long keys of a tree keep their ends, as text and as SVG") {
  tree_builder b;
  b.begin(node_kind::mapping);
  const std::string prefix = "decoder_" + std::string(40, 'x');
  b.leaf(prefix + "_weight");
  b.leaf(prefix + "_bias");
  b.end();
  const tree_spec tree = b.finish().value();
  for (const std::string& picture :
       {draw_tree(tree, labels, {.max_columns = 30}), svg_tree(tree, labels, {.max_columns = 30})}) {
    INFO(picture);
    CHECK(picture.find("decoder_") != std::string::npos);
    CHECK(picture.find("_weight") != std::string::npos);
    CHECK(picture.find("_bias") != std::string::npos);
    CHECK(picture.find(prefix) == std::string::npos);
  }
}

TEST_CASE("an SVG picture of a tree has a row for each node, under its parent") {
  const std::string picture = svg_tree(example(), labels);
  CHECK(picture.starts_with("<svg xmlns"));
  CHECK(picture.ends_with("</svg>\n"));
  const std::string body = picture.substr(picture.find("height=\"100%\"/>\n") + 16);
  CHECK(
      body ==
      "<text class=\"name\" x=\"16.00\" y=\"28.00\" text-anchor=\"start\"><tspan class=\"rest\">{3}</tspan></text>\n"
      "<path class=\"branch\" d=\"M21 33V42H31\"/>\n"
      "<text class=\"name\" x=\"34.00\" y=\"46.00\" text-anchor=\"start\"><tspan class=\"mapping\">model</tspan>&#160; "
      "<tspan class=\"rest\">{3}</tspan></text>\n"
      "<path class=\"branch\" d=\"M39 51V60H49\"/>\n"
      "<text class=\"name\" x=\"52.00\" y=\"64.00\" text-anchor=\"start\"><tspan class=\"leaf\">weight</tspan>&#160; "
      "<tspan class=\"rest\">float32 [2, 3]</tspan></text>\n"
      "<path class=\"branch\" d=\"M39 51V78H49\"/>\n"
      "<text class=\"name\" x=\"52.00\" y=\"82.00\" text-anchor=\"start\"><tspan "
      "class=\"leaf\">[\"a.b\"]</tspan>&#160; "
      "<tspan class=\"rest\">5</tspan></text>\n"
      "<path class=\"branch\" d=\"M39 51V96H49\"/>\n"
      "<text class=\"name\" x=\"52.00\" y=\"100.00\" text-anchor=\"start\"><tspan class=\"leaf\">[7]</tspan>&#160; "
      "<tspan class=\"rest\">True</tspan></text>\n"
      "<path class=\"branch\" d=\"M21 33V114H31\"/>\n"
      "<text class=\"name\" x=\"34.00\" y=\"118.00\" text-anchor=\"start\"><tspan class=\"tuple\">betas</tspan>&#160; "
      "<tspan class=\"rest\">(2)</tspan></text>\n"
      "<path class=\"branch\" d=\"M39 123V132H49\"/>\n"
      "<text class=\"name\" x=\"52.00\" y=\"136.00\" text-anchor=\"start\"><tspan class=\"leaf\">[0]</tspan>&#160; "
      "<tspan class=\"rest\">0.9</tspan></text>\n"
      "<path class=\"branch\" d=\"M39 123V150H49\"/>\n"
      "<text class=\"name\" x=\"52.00\" y=\"154.00\" text-anchor=\"start\"><tspan class=\"leaf\">[1]</tspan>&#160; "
      "<tspan class=\"rest\">0.99</tspan></text>\n"
      "<path class=\"branch\" d=\"M21 33V168H31\"/>\n"
      "<text class=\"name\" x=\"34.00\" y=\"172.00\" text-anchor=\"start\"><tspan "
      "class=\"sequence\">empty</tspan>&#160; "
      "<tspan class=\"rest\">[]</tspan></text>\n"
      "</svg>\n");
}

TEST_CASE("an SVG picture of a tree ends after the lines allowed, and no key or label is markup") {
  const std::string picture = svg_tree(example(), labels, {.max_lines = 4});
  CHECK(picture.find("and 5 more nodes</text>") != std::string::npos);
  CHECK(picture.find("<tspan class=\"rest\">5</tspan>") != std::string::npos);
  CHECK(picture.find("True") == std::string::npos);
  tree_builder b;
  b.begin(node_kind::mapping);
  b.leaf("<script>\x1b");
  b.leaf(std::string(60, 'k'));
  b.end();
  const std::string hostile =
      svg_tree(b.finish().value(), std::vector<std::string>{"a</svg>&", ""}, {.max_columns = 30});
  CHECK(hostile.find("<script") == std::string::npos);
  CHECK(hostile.find("&lt;script&gt;\\x1b") != std::string::npos);
  CHECK(hostile.find("a&lt;/svg&gt;&amp;") != std::string::npos);
  CHECK(hostile.find(">" + std::string(9, 'k') + "..." + std::string(18, 'k') + "</tspan></text>") !=
        std::string::npos);
  CHECK(svg_tree(tree_spec()).ends_with("height=\"100%\"/>\n</svg>\n"));
}

TEST_CASE("keys of containers are coloured by kind when colour is asked for") {
  const std::string text = draw_tree(example(), labels, {.color = true});
  CHECK(text.find("|- \x1b[1;34mmodel\x1b[0m {3}\n") != std::string::npos);
  CHECK(text.find("|- \x1b[1;35mbetas\x1b[0m (2)\n") != std::string::npos);
  CHECK(text.find("|  |- weight  float32") != std::string::npos);
}
