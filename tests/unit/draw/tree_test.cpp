// SPDX-License-Identifier: Apache-2.0
// Drawings of trees: lines, limits, escapes and colours.
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
  CHECK(text.find("|- " + std::string(27, 'k') + "\n") != std::string::npos);
  CHECK(text.find("[\"\xc3\xa4\xc3\xa4\xc3\xa4\"]  label\n") != std::string::npos);
}

TEST_CASE("keys of containers are coloured by kind when colour is asked for") {
  const std::string text = draw_tree(example(), labels, {.color = true});
  CHECK(text.find("|- \x1b[1;34mmodel\x1b[0m {3}\n") != std::string::npos);
  CHECK(text.find("|- \x1b[1;35mbetas\x1b[0m (2)\n") != std::string::npos);
  CHECK(text.find("|  |- weight  float32") != std::string::npos);
}
