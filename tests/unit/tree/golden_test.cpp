// SPDX-License-Identifier: Apache-2.0
// Compares with PyTorch's own answers (tests/data/golden/seeds/traverse.json): structures, unflatten, and print_tensor,
// every field. tests/data/differences/traverse.json lists the differences, which follow from these rules:
//  - PyTorch's names and paths write integer keys of mappings as strings; our paths keep them (torch_path below);
//  - two items with one name are an error in both; our error names both paths, and key_policy::typed has no such pair;
//  - PyTorch's round trip loses what flattening loses (empty mappings, OrderedDict); ours is exact by the spec, for
//    which an OrderedDict is a mapping like any other;
//  - a path that leads through another is an error; PyTorch fails or forgets a value, depending on the order;
//  - a mapping may have string and integer keys; PyTorch's answer depends on which comes first.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cstddef>
#include <cstdint>
#include <differences.hpp>
#include <golden.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <tagged_tree.hpp>
#include <utility>
#include <variant>
#include <vector>
import shardmesh.test.tagged_tree;
import shardmesh.tree;

using namespace shardmesh;
using nlohmann::json;

namespace {

const json& traversals() {
  return golden::file("seeds/traverse.json");
}

// A mapping's class is not part of a tree's shape.
void forget_ordered(tagged::node& root) {
  visit(root, [](const path&, tagged::node& n) {
    if (n.type == "OrderedDict") n.type = "dict";
    return visit_step::into;
  });
}

struct flat_case {
  tagged::node root;
  flat_view<tagged::node> flat;
  std::vector<std::uint8_t> is_tensor;

  explicit flat_case(const json& input) : root(tagged::parse(input)) {
    flat = flatten_tree(root).value();
    for (const tagged::node* leaf : flat.leaves) is_tensor.push_back(leaf->type == "tensor");
  }
  // PyTorch's path of an item: keys of mappings are strings.
  json torch_path(const named_item& item) const {
    json where = json::array();
    path above;
    for (const path_key& key : item.where) {
      const bool in_mapping = find(root, above)->is_mapping();
      if (key.is_index() && !in_mapping)
        where.push_back(key.index());
      else
        where.push_back(key.is_index() ? std::to_string(key.index()) : std::string(key.name()));
      above.push_back(key);
    }
    return where;
  }
  // [path, type, value] of every item, as PyTorch's visitor gets them.
  json visited(key_policy policy, const std::vector<std::uint8_t>& tensors) const {
    json all = json::array();
    const auto items = items_of(flat.spec, tensors, policy).value();
    for (const named_item& item : items) {
      const tagged::node* node = find(root, item.where);
      REQUIRE(node != nullptr);
      all.push_back({torch_path(item), node->type, tagged::to_json(*node)});
      if (!node->is_container()) CHECK(node == flat.leaves[item.first_leaf]);
    }
    return all;
  }
};

path to_path(const json& keys) {
  path made;
  for (const json& key : keys)
    key.is_string() ? made.push_back(key.get<std::string>()) : made.push_back(key.get<std::int64_t>());
  return made;
}

// The result of PyTorch's unflatten_state_dict for these paths and values, or our refusal.
json rebuilt(const std::vector<path>& paths, std::vector<tagged::node> values) {
  auto made = unflatten(paths, {.max_holes = 1000});
  if (!made) return golden::refusal(made.error());
  std::vector<tagged::node> leaves;
  for (const std::size_t from : made->leaf_order)
    leaves.push_back(from == unflattened::hole ? tagged::node{} : std::move(values[from]));
  return tagged::to_json(build(made->spec, std::move(leaves)).value());
}

// Names and paths, and the tree that they lead back to, in the golden file's form.
json flattened(const flat_case& c, key_policy policy) {
  const auto items = flatten(c.flat.spec, c.is_tensor, policy);
  if (!items) {
    CHECK(items.error().code == errc::duplicate_key);
    return golden::refusal(items.error());
  }
  json mapping = json::array();
  std::vector<path> paths;
  std::vector<tagged::node> values;
  for (const named_item& item : *items) {
    mapping.push_back({item.name, c.torch_path(item)});
    paths.push_back(to_path(mapping.back()[1]));
    values.push_back(*find(c.root, item.where));
  }
  json back = rebuilt(paths, std::move(values));
  const bool same = back == tagged::to_json(c.root);
  if (!golden::refused(back))
    back = same ? json{{"same_as_input", true}} : json{{"same_as_input", false}, {"tree", back}};
  return {{"mapping", mapping}, {"unflatten", back}};
}

}  // namespace

TEST_CASE(
    "nested state is traversed and named as PyTorch does it, and the names lead back to what PyTorch makes of them",
    "[traverse]") {
  golden::differences differences("traverse", "structures");
  for (const json& s : traversals()["structures"]) {
    const auto name = s["name"].get<std::string>();
    INFO(name);
    const flat_case c(s["input"]);
    const std::vector<std::uint8_t> none(c.is_tensor.size(), 0);
    json theirs = s;
    theirs.erase("name");
    theirs.erase("input");
    json ours{{"traverse", c.visited(key_policy::torch_dcp, c.is_tensor)},
              {"traverse_v_2_3", c.visited(key_policy::torch_dcp_2_3, c.is_tensor)},
              {"traverse_keep_none", c.visited(key_policy::torch_dcp, none)},
              {"flatten", flattened(c, key_policy::torch_dcp)},
              {"flatten_v_2_3", flattened(c, key_policy::torch_dcp_2_3)}};
    // The file shortens an answer that equals another.
    if (ours["traverse_keep_none"] == ours["traverse"]) ours.erase("traverse_keep_none");
    for (const char* field : {"traverse", "flatten"})
      if (ours[std::string(field) + "_v_2_3"] == ours[field]) ours[std::string(field) + "_v_2_3"] = "same";
    differences.compare(name, theirs, ours, "refusals");
  }
  differences.finish();
}

TEST_CASE("typed names never collide and the flat form leads back to all that was there", "[traverse]") {
  for (const json& s : traversals()["structures"]) {
    INFO(s["name"]);
    flat_case c(s["input"]);
    const auto items = flatten(c.flat.spec, c.is_tensor, key_policy::typed).value();
    std::set<std::string> names;
    std::size_t leaves = 0;
    for (const named_item& item : items) {
      names.insert(item.name);
      leaves += item.leaves;
    }
    CHECK(names.size() == items.size());
    CHECK(leaves == c.flat.leaves.size());
    std::vector<tagged::node> copies;
    for (const tagged::node* leaf : c.flat.leaves) copies.push_back(*leaf);
    const tagged::node back = build(c.flat.spec, std::move(copies)).value();
    forget_ordered(c.root);
    CHECK(back == c.root);
  }
}

TEST_CASE("visit meets every node of PyTorch's structures once, and find leads to it", "[traverse]") {
  for (const json& s : traversals()["structures"]) {
    INFO(s["name"]);
    const tagged::node root = tagged::parse(s["input"]);
    std::size_t met = 0;
    visit(root, [&](const path& where, const tagged::node& n) {
      CHECK(find(root, where) == &n);
      return ++met, visit_step::into;
    });
    CHECK(met == flatten_tree(root).value().spec.nodes().size());
  }
}

TEST_CASE("paths lead back to PyTorch's tree, or to an error where PyTorch fails or forgets a value", "[traverse]") {
  golden::differences differences("traverse", "unflatten");
  for (const json& u : traversals()["unflatten"]) {
    const auto note = u["note"].get<std::string>();
    INFO(note);
    std::vector<path> paths;
    std::vector<tagged::node> values;
    for (const json& pair : u["mapping"]) {
      paths.push_back(to_path(pair[1]));
      values.push_back({"int", values.size()});
    }
    if (u.contains("state")) {  // a value without a path: the leaves do not fit
      values.resize(u["state"].size());
      const auto made = build(unflatten(paths).value().spec, std::move(values));
      REQUIRE(!made);
      differences.compare(note, {{"exception", u["exception"]}, {"result", u["result"]}},
                          {{"exception", golden::refusal(made.error())["exception"]}, {"result", nullptr}}, note);
      continue;
    }
    const json made = rebuilt(paths, std::move(values));
    differences.compare(
        note, {{"exception", u["exception"]}, {"result", u["result"]}},
        {{"exception", made.value("exception", json())}, {"result", golden::refused(made) ? json() : made}}, note);
    if (golden::refused(made)) continue;
    // Every value is at its path.
    const auto back = unflatten(paths).value();
    auto found = back.spec.leaf_paths();
    std::sort(found.begin(), found.end());
    std::sort(paths.begin(), paths.end());
    CHECK(found == paths);
  }
  differences.finish();
}

TEST_CASE("a place that no path names is not made up unless asked for") {
  const std::vector<path> paths{{"a", 3}};
  const auto exact = unflatten(paths).value();
  CHECK(exact.spec.leaf_paths() == paths);
  CHECK(exact.spec.nodes()[1].kind == node_kind::mapping);
  const auto filled = unflatten(paths, {.max_holes = 3}).value();
  CHECK(filled.spec.nodes()[4].kind == node_kind::sequence);
  CHECK(filled.leaf_order == std::vector<std::size_t>{unflattened::hole, unflattened::hole, unflattened::hole, 0});
  const auto refused = unflatten(std::vector<path>{{"a", std::int64_t{1} << 62}}, {.max_holes = 1000});
  REQUIRE(!refused);
  CHECK(refused.error().key == "a[4611686018427387904]");
  CHECK(refused.error().expected == "at most 1000");
}

TEST_CASE("a visitor prints what PyTorch's print_tensor prints", "[traverse]") {
  for (const json& p : traversals()["print_tensor"]) {
    tagged::node root = tagged::parse(p["value"]);
    for (std::size_t i = p["path"].size(); i-- > 0;) {
      const path_key key = *to_path(json::array({p["path"][i]})).begin();
      root = key.is_index() ? tagged::node{"list", nullptr, {{key.index(), std::move(root)}}}
                            : tagged::node{"dict", nullptr, {{std::string(key.name()), std::move(root)}}};
    }
    std::vector<std::string> lines;
    const auto print = [&](const path& where, const tagged::node& n) {
      std::string text = "(";
      for (std::size_t i = 0; i < where.size(); ++i) {
        text += i == 0 ? "" : ", ";
        text += where[i].is_index() ? std::to_string(where[i].index()) : "'" + std::string(where[i].name()) + "'";
      }
      text += where.size() == 1 ? ",)" : ")";
      if (n.type == "tensor") {
        std::string sizes = n.leaf["$tensor"]["shape"].dump();
        for (std::size_t i = 0; (i = sizes.find(',', i)) != std::string::npos; i += 2) sizes.insert(i + 1, " ");
        lines.push_back(text + " Tensor size: torch.Size(" + sizes + ")");
      } else {
        lines.push_back(text + " Type: <class '" + n.type + "'>");
      }
    };
    const flat_case c(tagged::to_json(root));
    const auto items = flatten(c.flat.spec, c.is_tensor, key_policy::torch_dcp).value();
    for (const named_item& item : items)
      if (item.where.size() == p["path"].size()) print(item.where, *find(c.root, item.where));
    // PyTorch enters a list only for a tensor or a mapping in it.
    CHECK(lines == p["lines"].get<std::vector<std::string>>());
  }
}
