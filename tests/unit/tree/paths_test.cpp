// SPDX-License-Identifier: Apache-2.0
// Tests paths and names of trees: keys that stay distinct, PyTorch's flattening rules, and trees built from paths.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>
import shardmesh.tree;

using namespace shardmesh;

namespace {

// {"model": {"w": T, "a.b": T}, "steps": [1, 2], "betas": (0.9, T), "list": [T, {"x": 1}], "empty": {}, "plain": {"lr":
// 1}}
tree_spec example() {
  tree_builder b;
  b.begin(node_kind::mapping);
  b.key("model");
  b.begin(node_kind::mapping);
  b.key("w");
  b.leaf();
  b.key("a.b");
  b.leaf();
  b.end();
  b.key("steps");
  b.begin(node_kind::sequence);
  b.leaf();
  b.leaf();
  b.end();
  b.key("betas");
  b.begin(node_kind::tuple);
  b.leaf();
  b.leaf();
  b.end();
  b.key("list");
  b.begin(node_kind::sequence);
  b.leaf();
  b.begin(node_kind::mapping);
  b.key("x");
  b.leaf();
  b.end();
  b.end();
  b.key("empty");
  b.begin(node_kind::mapping);
  b.end();
  b.key("plain");
  b.begin(node_kind::mapping);
  b.key("lr");
  b.leaf();
  b.end();
  b.end();
  return b.finish().value();
}
const std::vector<std::uint8_t> tensors{1, 1, 0, 0, 0, 1, 1, 0, 0};

std::vector<std::string> names(key_policy policy) {
  std::vector<std::string> all;
  const auto items = flatten(example(), tensors, policy).value();
  for (const named_item& item : items) all.push_back(item.name);
  return all;
}
using list = std::vector<std::string>;

}  // namespace

TEST_CASE("string and integer keys never meet") {
  const path a{"x", 0}, b{"x", "0"};
  CHECK(a != b);
  CHECK(a < b);
  CHECK(std::hash<path>{}(a) != std::hash<path>{}(b));
  CHECK(to_string(a) == "x[0]");
  CHECK(to_string(b) == "x[\"0\"]");
  CHECK(dotted(a) == dotted(b));
  CHECK(to_string(path{"a.b", "c", "q\"\\"}) == "[\"a.b\"].c[\"q\\\"\\\\\"]");
  CHECK(to_string(path{"a", "b"}) == "a.b");
  CHECK(to_string(path{}) == "");
}

TEST_CASE("PyTorch's flattening since 2.4 keeps tuples and plain lists whole and drops empty mappings") {
  CHECK(names(key_policy::torch_dcp) ==
        list{"model.w", "model.a.b", "steps", "betas", "list.0", "list.1.x", "plain.lr"});
}

TEST_CASE("PyTorch's flattening up to 2.3 keeps mappings without tensors whole") {
  CHECK(names(key_policy::torch_dcp_2_3) ==
        list{"model.w", "model.a.b", "steps", "betas", "list.0", "list.1", "empty", "plain"});
}

TEST_CASE("typed flattening keeps everything") {
  CHECK(names(key_policy::typed) == list{"model.w", "model[\"a.b\"]", "steps[0]", "steps[1]", "betas[0]", "betas[1]",
                                         "list[0]", "list[1].x", "empty", "plain.lr"});
}

TEST_CASE("items know their leaves") {
  const auto items = flatten(example(), tensors, key_policy::torch_dcp).value();
  CHECK(items[3].name == "betas");
  CHECK(items[3].first_leaf == 4);
  CHECK(items[3].leaves == 2);
  CHECK(items[4].first_leaf == 6);
}

TEST_CASE("two paths with one dotted name are an error that names both") {
  const auto clash = names_of(std::vector<path>{{"a.b"}, {"a", "b"}}, key_policy::torch_dcp);
  REQUIRE(!clash);
  CHECK(clash.error().code == errc::duplicate_key);
  CHECK(clash.error().message.find("[\"a.b\"] and a.b") != std::string::npos);
  CHECK(names_of(std::vector<path>{{"a.b"}, {"a", "b"}}, key_policy::typed).has_value());
}

TEST_CASE("unflatten rebuilds what leaf paths say") {
  tree_builder b;
  b.begin(node_kind::mapping);
  b.key("z");
  b.begin(node_kind::sequence);
  b.leaf();
  b.leaf();
  b.end();
  b.key("a");
  b.leaf();
  b.end();
  const auto tree = b.finish().value();
  CHECK(tree.leaf_paths() == std::vector<path>{{"z", 0}, {"z", 1}, {"a"}});
  const auto rebuilt = unflatten(std::vector<path>{{"z", 1}, {"a"}, {"z", 0}}).value();
  CHECK(rebuilt.spec == tree);
  CHECK(rebuilt.leaf_order == std::vector<std::size_t>{2, 0, 1});
  CHECK(unflatten(std::vector<path>{{"a"}, {"a", "b"}}).error().code == errc::invalid_argument);
  CHECK(unflatten(std::vector<path>{{"a", "b"}, {"a"}}).error().code == errc::invalid_argument);
  CHECK(unflatten(std::vector<path>{{"a"}, {"a"}}).error().code == errc::duplicate_key);
}

TEST_CASE("a wrongly built tree is refused") {
  tree_builder b;
  b.begin(node_kind::mapping);
  b.leaf();
  b.end();
  CHECK(!b.finish());
  b.begin(node_kind::sequence);
  CHECK(!b.finish());
  b.end();
  CHECK(!b.finish());
  b.begin(node_kind::mapping);
  b.key("a");
  b.leaf();
  b.key("a");
  b.leaf();
  b.end();
  CHECK(b.finish().error().code == errc::duplicate_key);
  b.leaf();
  CHECK(b.finish().value().leaves() == 1);
}

TEST_CASE("depth is no trouble") {
  tree_builder b;
  constexpr int depth = 2000;
  for (int i = 0; i < depth; ++i) b.begin(node_kind::sequence);
  b.leaf();
  for (int i = 0; i < depth; ++i) b.end();
  const auto tree = b.finish().value();
  CHECK(tree.leaf_paths()[0].size() == depth);
}
