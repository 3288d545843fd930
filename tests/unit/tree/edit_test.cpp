// SPDX-License-Identifier: Apache-2.0
// Compares flat trees that are changed in place with trees built from scratch.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <random>
#include <random_seed.hpp>
#include <string>
#include <utility>
#include <vector>
import shardmesh.tree;

using namespace shardmesh;

namespace {

// The model: a tree of nodes that own their children.
struct model {
  node_kind kind = node_kind::leaf;
  std::vector<std::pair<path_key, model>> children;
};

void add(tree_builder& builder, const model& m, const path_key& key) {
  if (m.kind == node_kind::leaf) return builder.leaf(key);
  builder.begin(m.kind, key);
  for (const auto& [k, child] : m.children) add(builder, child, k);
  builder.end();
}

tree_spec spec_of(const model& m) {
  tree_builder builder;
  add(builder, m, 0);
  return builder.finish().value();
}

void number(model& m) {
  if (m.kind == node_kind::sequence || m.kind == node_kind::tuple)
    for (std::size_t i = 0; i < m.children.size(); ++i) m.children[i].first = static_cast<std::int64_t>(i);
}

model random_model(std::mt19937_64& random, int depth) {
  model m;
  m.kind = depth == 0 ? node_kind::leaf : static_cast<node_kind>(random() % 4);
  if (m.kind == node_kind::leaf) return m;
  const std::size_t children = random() % 4;
  for (std::size_t i = 0; i < children; ++i)
    m.children.emplace_back("k" + std::to_string(i), random_model(random, depth - 1));
  number(m);
  return m;
}

// The nodes in post-order, and their parents.
void post_order(model& m, model* parent, std::vector<std::pair<model*, model*>>& all) {
  for (auto& [key, child] : m.children) post_order(child, &m, all);
  all.emplace_back(&m, parent);
}

std::size_t graft_all(model& m, const std::vector<leaf_graft>& grafts, const std::vector<model>& with,
                      std::size_t leaf) {
  std::vector<std::pair<path_key, model>> kept;
  for (auto& [key, child] : m.children) {
    if (child.kind != node_kind::leaf) {
      leaf = graft_all(child, grafts, with, leaf);
      kept.emplace_back(key, child);
      continue;
    }
    if (!grafts[leaf].drop) kept.emplace_back(key, grafts[leaf].with ? with[leaf] : child);
    ++leaf;
  }
  m.children = std::move(kept);
  number(m);
  return leaf;
}

}  // namespace

TEST_CASE("edits of random trees equal trees that are built anew") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (int run = 0; run < 3000; ++run) {
    model m;
    m.kind = static_cast<node_kind>(1 + random() % 3);
    const std::size_t wide = 1 + random() % 4;
    for (std::size_t i = 0; i < wide; ++i) m.children.emplace_back("r" + std::to_string(i), random_model(random, 3));
    number(m);
    tree_spec spec = spec_of(m);
    std::vector<std::pair<model*, model*>> all;
    post_order(m, nullptr, all);
    const std::size_t node = random() % all.size();
    const auto [here, parent] = all[node];
    const model other = random_model(random, 2);
    CHECK(tree_editor::subtree(spec, node) == spec_of(*here));
    tree_editor edit(spec);
    switch (random() % 4) {
      case 0:
        edit.replace(node, spec_of(other));
        *here = other;
        break;
      case 1:
        if (here->kind == node_kind::leaf) break;
        CHECK(edit.append(node, "new", spec_of(other)));
        here->children.emplace_back("new", other);
        number(*here);
        break;
      case 2:
        if (here->kind == node_kind::leaf || here->kind == node_kind::mapping) break;
        CHECK(edit.append_leaves(node, 3));
        for (int i = 0; i < 3; ++i) here->children.emplace_back(0, model{});
        number(*here);
        break;
      default:
        if (parent == nullptr) break;
        edit.erase(node);
        parent->children.erase(std::find_if(parent->children.begin(), parent->children.end(),
                                            [&, h = here](auto& child) { return &child.second == h; }));
        number(*parent);
    }
    CHECK(spec == spec_of(m));

    std::vector<model> with(spec.leaves());
    std::vector<tree_spec> trees(spec.leaves());
    std::vector<leaf_graft> grafts(spec.leaves());
    for (std::size_t i = 0; i < grafts.size(); ++i) {
      const std::uint64_t what = random() % 3;
      grafts[i].drop = what == 0;
      with[i] = random_model(random, 2);
      trees[i] = spec_of(with[i]);
      if (what == 1) grafts[i].with = &trees[i];
    }
    if (m.kind == node_kind::leaf) continue;
    const tree_spec grafted = tree_editor::graft(spec, grafts).value();
    graft_all(m, grafts, with, 0);
    CHECK(grafted == spec_of(m));
  }
}

TEST_CASE("as many grafts as leaves are needed") {
  const tree_spec spec = spec_of({node_kind::sequence, {{0, {}}, {1, {}}}});
  const auto made = tree_editor::graft(spec, std::vector<leaf_graft>(3));
  REQUIRE(!made);
  CHECK(made.error().expected == "2");
  CHECK(made.error().found == "3");
}
