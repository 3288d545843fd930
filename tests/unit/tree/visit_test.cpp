// SPDX-License-Identifier: Apache-2.0
// Tests walks: extremes (depth, width, early stop), nodes that change during the walk, handles, and errors.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random_seed.hpp>
#include <string>
#include <tagged_tree.hpp>
#include <utility>
#include <variant>
#include <vector>
import shardmesh.test.tagged_tree;
import shardmesh.tree;

using namespace shardmesh;

namespace {

// A node that owns its children, and is destroyed without recursion.
struct owner {
  node_kind kind = node_kind::leaf;
  std::vector<owner> children{};

  owner(node_kind k = node_kind::leaf, std::vector<owner> c = {}) : kind(k), children(std::move(c)) {}
  owner(owner&&) = default;
  owner& operator=(owner&&) = default;
  ~owner() {
    std::vector<owner> rest = std::move(children);
    while (!rest.empty()) {
      owner last = std::move(rest.back());
      rest.pop_back();
      for (owner& child : last.children) rest.push_back(std::move(child));
      last.children.clear();
    }
  }
};

// Nodes in an array, walked by handles. Counts the requests for children.
struct arena {
  struct node {
    node_kind kind = node_kind::leaf;
    std::vector<std::size_t> children{};
  };
  std::vector<node> nodes;
  std::size_t asked = 0;
};
struct handle {
  arena* of;
  std::size_t index;
  friend bool operator==(const handle&, const handle&) = default;
};

// Enough that a recursive walk overflows the stack, and that quadratic work takes minutes.
const std::size_t many = random_seed::runs_are_long() ? 1'000'000 : 250'000;

arena deep_arena() {
  arena made;
  made.nodes.resize(many + 1);
  for (std::size_t i = 0; i < many; ++i) made.nodes[i] = {node_kind::sequence, {i + 1}};
  return made;
}

arena wide_arena() {
  arena made;
  made.nodes.resize(many + 1);
  made.nodes[0].kind = node_kind::tuple;
  for (std::size_t i = 1; i <= many; ++i) made.nodes[0].children.push_back(i);
  return made;
}

tagged::node example() {
  return tagged::parse(nlohmann::json::parse(
      R"({"$dict": [["model", {"$dict": [["w", 1], ["b", [2, 3]]]}], ["empty", []], [7, {"$tuple": [4]}]]})"));
}

std::string text(const path& where) {
  return to_string(where);
}

}  // namespace

template <>
struct shardmesh::node_adapter<owner> {
  static node_kind kind(const owner& n) { return n.kind; }
  template <class N, class Visit>
  static void children(N& n, Visit&& visit) {
    std::int64_t i = 0;
    for (auto& child : n.children)
      if (!visit(n.kind == node_kind::mapping ? path_key(std::to_string(i++)) : path_key(i++), child)) return;
  }
  static owner make(node_kind kind, std::vector<std::pair<path_key, owner>> children) {
    owner made{kind};
    for (auto& [key, child] : children) made.children.push_back(std::move(child));
    return made;
  }
};

template <>
struct shardmesh::node_adapter<handle> {
  static constexpr bool is_handle = true;
  static node_kind kind(const handle& n) { return n.of->nodes[n.index].kind; }
  template <class Visit>
  static void children(const handle& n, Visit&& visit) {
    std::int64_t i = 0;
    for (const std::size_t child : n.of->nodes[n.index].children) {
      ++n.of->asked;
      if (!visit(i++, handle{n.of, child})) return;
    }
  }
  static std::optional<handle> child(const handle& n, const path_key& key) {
    const auto& children = n.of->nodes[n.index].children;
    const auto i = static_cast<std::size_t>(key.is_index() ? key.index() : -1);
    if (i >= children.size()) return std::nullopt;
    return handle{n.of, children[i]};
  }
};

namespace {

// Transforms a tree of handles into one of owners, walks both together, and returns the number of nodes in both.
std::size_t nodes_transformed(const handle& root) {
  const auto owned = transform(root, [](const path&, const handle& n) {
    if (node_adapter<handle>::kind(n) == node_kind::leaf) return transformed<owner>::replace({});
    return transformed<owner>::keep();
  });
  std::size_t met = 0;
  CHECK(visit_together(root, owned.value(), [&](const path&, const handle* a, const owner* b) {
    return ++met, a && b ? visit_step::into : visit_step::stop;
  }));
  return met;
}

}  // namespace

TEST_CASE("a very deep tree is walked, zipped, transformed, flattened and built") {
  arena memory = deep_arena();
  const handle root{&memory, 0};
  std::size_t deepest = 0, met = 0;
  CHECK(visit(root, [&](const path& where, const handle&) {
    deepest = where.size();
    return ++met, visit_step::into;
  }));
  CHECK(met == many + 1);
  CHECK(deepest == many);
  met = 0;
  CHECK(visit_post(root, [&](const path& where, const handle&) {
    if (met == 0) CHECK(where.size() == many);
    ++met;
    deepest = where.size();
  }));
  CHECK(met == many + 1);
  CHECK(deepest == 0);

  CHECK(nodes_transformed(root) == many + 1);

  const auto flat = flatten_tree(root).value();
  CHECK(flat.spec.nodes().size() == many + 1);
  CHECK(flat.leaves == std::vector<handle>{{&memory, many}});
  CHECK(flat.spec.path_of(0).size() == many);
  const auto paths = flat.spec.leaf_paths();
  CHECK(paths.at(0).size() == many);
  CHECK(unflatten(paths).value().spec == flat.spec);
  const auto items = flatten(flat.spec, std::vector<std::uint8_t>{1}, key_policy::torch_dcp).value();
  CHECK(items.at(0).name.size() == 2 * many - 1);
  CHECK(find(root, paths[0]) == handle{&memory, many});

  std::vector<owner> leaves(1);
  const owner built = build(flat.spec, std::move(leaves)).value();
  CHECK(flatten_tree(built).value().spec == flat.spec);
}

TEST_CASE("a very wide tree is walked, zipped, transformed, flattened and built") {
  arena memory = wide_arena();
  const handle root{&memory, 0};
  std::size_t met = 0;
  CHECK(visit_leaves(root, [&](const path& where, const handle& n) {
    if (where[0].index() + 1 != static_cast<std::int64_t>(n.index)) return false;
    return ++met, true;
  }));
  CHECK(met == many);
  CHECK(memory.asked < many * 2);  // the window of children that are asked for doubles

  CHECK(nodes_transformed(root) == many + 1);

  const auto flat = flatten_tree(root).value();
  CHECK(flat.leaves.size() == many);
  std::vector<owner> leaves(many);
  const owner built = build(flat.spec, std::move(leaves)).value();
  CHECK(flatten_tree(built).value().spec == flat.spec);
}

TEST_CASE("a visit that stops early in a wide node asks for few of its children") {
  arena memory = wide_arena();
  handle root{&memory, 0};
  std::size_t met = 0;
  CHECK(!visit(root, [&](const path&, handle&) { return ++met == 11 ? visit_step::stop : visit_step::into; }));
  CHECK(memory.asked < 100);
  memory.asked = met = 0;
  CHECK(!visit(root, [&](const path&, handle&) { return ++met == 10'001 ? visit_step::stop : visit_step::into; }));
  CHECK(memory.asked < 100'000);
  memory.asked = 0;
  CHECK(find(root, {static_cast<std::int64_t>(many) - 1}) == handle{&memory, many});
  CHECK(memory.asked == 0);
}

TEST_CASE("a visitor prunes, stops and replaces, and what it puts in place is descended into") {
  tagged::node root = example();
  std::vector<std::string> seen;
  CHECK(visit(root, [&](const path& where, tagged::node& n) {
    seen.push_back(text(where));
    if (where == path{"empty"}) n = tagged::parse(nlohmann::json::parse("[8, [9]]"));
    return where == path{"model", "b"} ? visit_step::over : visit_step::into;
  }));
  CHECK(seen == std::vector<std::string>{"", "model", "model.w", "model.b", "empty", "empty[0]", "empty[1]",
                                         "empty[1][0]", "[7]", "[7][0]"});
  seen.clear();
  CHECK(!visit_post(root, [&](const path& where, tagged::node& n) {
    seen.push_back(text(where));
    if (n.is_container()) n = tagged::node{};  // its children have been visited
    return where != path{"model"};
  }));
  CHECK(seen == std::vector<std::string>{"model.w", "model.b[0]", "model.b[1]", "model.b", "model"});
  CHECK(find(root, {"model"})->type == "NoneType");
}

TEST_CASE("a leaf is a tree") {
  tagged::node root{"int", 5};
  std::size_t met = 0;
  const auto count = [&](const path& where, tagged::node&) { met += where.empty(); };
  CHECK(visit_post(root, count));
  CHECK(visit_leaves(root, count));
  CHECK(met == 2);
  const auto flat = flatten_tree(root).value();
  CHECK(flat.leaves == std::vector<tagged::node*>{&root});
  CHECK(build(flat.spec, std::vector<tagged::node>{root}).value() == root);
  const auto items = flatten(flat.spec, std::vector<std::uint8_t>{0}, key_policy::typed).value();
  CHECK(items.size() == 1);
  CHECK(items[0].name.empty());
}

TEST_CASE("find tells integer from string keys and gives nothing where nothing is") {
  const tagged::node root = example();
  CHECK(find(root, {7, 0})->leaf == 4);
  CHECK(find(root, {"7", 0}) == nullptr);
  CHECK(find(root, {"model", "b", 2}) == nullptr);
  CHECK(find(root, {"model", "w", 0}) == nullptr);
  CHECK(find(root, {}) == &root);
  arena memory = wide_arena();
  CHECK(find(handle{&memory, 0}, {"x"}) == std::nullopt);
}

TEST_CASE("trees of different kinds of containers are met together down to where they differ") {
  const auto a = tagged::parse(nlohmann::json::parse(R"({"$dict": [["x", [1]], ["y", 1], ["z", 1]]})"));
  const auto b = tagged::parse(nlohmann::json::parse(R"({"$dict": [["n", 1], ["z", 2], ["x", {"$tuple": [1]}]]})"));
  std::vector<std::string> seen;
  visit_together(a, b, [&](const path& where, const tagged::node* x, const tagged::node* y) {
    seen.push_back(text(where) + (x ? "<" : "") + (y ? ">" : ""));
    return visit_step::into;
  });
  CHECK(seen == std::vector<std::string>{"<>", "x<>", "y<", "z<>", "n>"});
}

TEST_CASE("transform moves elements up when one is dropped, and says what it cannot do") {
  const tagged::node root = example();
  const auto without_two = transform(root, [](const path& where, const tagged::node&) {
    if (where == path{"model", "b", 0}) return transformed<tagged::node>::drop();
    return transformed<tagged::node>::keep();
  });
  CHECK(find(*without_two, {"model", "b", 0})->leaf == 3);
  CHECK(find(*without_two, {"model", "b", 1}) == nullptr);

  const auto nothing =
      transform(root, [](const path&, const tagged::node&) { return transformed<tagged::node>::drop(); });
  REQUIRE(!nothing);
  CHECK(nothing.error().code == errc::invalid_argument);

  const auto kept_leaf = transform(root, [](const path&, const tagged::node&) { return transformed<owner>::keep(); });
  REQUIRE(!kept_leaf);
  CHECK(kept_leaf.error().code == errc::invalid_argument);
  CHECK(kept_leaf.error().key == "model.w");
}

TEST_CASE("build refuses leaves that do not fit and names the counts") {
  const tagged::node root = example();
  const auto spec = flatten_tree(root).value().spec;
  const auto made = build(spec, std::vector<tagged::node>(3));
  REQUIRE(!made);
  CHECK(made.error().code == errc::invalid_argument);
  CHECK(made.error().expected == "4 leaves");
  CHECK(made.error().found == "3");
  CHECK(!build(tree_spec(), std::vector<tagged::node>()));
}

TEST_CASE("flattening a mapping with a key twice names the path") {
  for (const int others : {0, 40}) {  // few keys are compared pairwise, many are sorted
    tagged::node root = example();
    tagged::node& model = root.children[0].second;
    for (int i = 0; i < others; ++i) model.children.emplace_back("k" + std::to_string(others - i), tagged::node{});
    model.children.emplace_back("w", tagged::node{});
    const auto flat = flatten_tree(root);
    REQUIRE(!flat);
    CHECK(flat.error().code == errc::duplicate_key);
    CHECK(flat.error().key == "model.w");
  }
}
