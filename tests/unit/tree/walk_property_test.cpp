// SPDX-License-Identifier: Apache-2.0
// Compares every walk over random trees with a recursive model in this file. Failures print the seed.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <random_tree.hpp>
#include <set>
#include <string>
#include <tagged_tree.hpp>
#include <utility>
#include <variant>
#include <vector>
import shardmesh.test.tagged_tree;
import shardmesh.tree;

using namespace shardmesh;
using tagged::node;

namespace {

using keys = std::vector<tagged::key>;

// A path, and a word for what happened there.
struct event {
  keys where;
  std::string what;
  friend bool operator==(const event&, const event&) = default;
};

keys to_keys(const path& where) {
  keys made;
  for (const path_key& k : where)
    k.is_index() ? made.emplace_back(k.index()) : made.emplace_back(std::string(k.name()));
  return made;
}

std::string word(const node& n) {
  return n.type + n.leaf.dump();
}

// A decision that depends only on the path, so that the walk and the model make the same.
std::size_t decision(const keys& where, std::size_t seed, std::size_t choices) {
  std::size_t hash = seed * 0x9e3779b97f4a7c15ULL + where.size();
  for (const tagged::key& k : where) hash = (hash ^ std::hash<tagged::key>{}(k)) * 0xff51afd7ed558ccdULL;
  return (hash >> 33) % choices;
}

// --- models ---------------------------------------------------------------------------------------------------------

struct visit_model {
  std::size_t seed;
  std::vector<event> events{};
  keys where{};

  visit_step step() const {
    const std::size_t d = decision(where, seed, 200);
    return d == 0 ? visit_step::stop : d < 20 ? visit_step::over : visit_step::into;
  }
  bool pre(const node& n) {
    events.push_back({where, word(n)});
    const visit_step next = step();
    if (next != visit_step::into) return next == visit_step::over;
    return each(n, [&](const node& child) { return pre(child); });
  }
  bool post(const node& n) {
    if (!each(n, [&](const node& child) { return post(child); })) return false;
    events.push_back({where, word(n)});
    return step() != visit_step::stop;
  }
  template <class F>
  bool each(const node& n, F f) {
    for (const auto& [k, child] : n.children) {
      where.push_back(k);
      if (!f(child)) return false;
      where.pop_back();
    }
    return true;
  }
};

bool pair_model(const node* a, const node* b, keys& where, std::size_t seed, std::vector<event>& events) {
  events.push_back({where, (a ? word(*a) : "-") + " " + (b ? word(*b) : "-")});
  const std::size_t d = decision(where, seed, 200);
  if (d < 20) return d != 0;
  if (!a || !b || !a->is_container()) return true;
  const auto kind = [](const node& n) { return n.is_mapping() ? "mapping" : n.type; };
  if (kind(*a) != kind(*b)) return true;
  const auto child_of = [](const node& n, const tagged::key& k) -> const node* {
    for (const auto& [key, child] : n.children)
      if (key == k) return &child;
    return nullptr;
  };
  const auto one = [&](const tagged::key& k) {
    where.push_back(k);
    const bool on = pair_model(child_of(*a, k), child_of(*b, k), where, seed, events);
    if (on) where.pop_back();
    return on;
  };
  for (const auto& [k, child] : a->children)
    if (!one(k)) return false;
  for (const auto& [k, child] : b->children)
    if (child_of(*a, k) == nullptr && !one(k)) return false;
  return true;
}

// Drops, replaces, and rebuilds; every kept leaf becomes "seen".
std::optional<node> transform_model(const node& n, keys& where, std::size_t seed) {
  const std::size_t d = decision(where, seed, 12);
  if (d == 0 && !where.empty()) return std::nullopt;
  if (d == 1) return node{"str", "replaced"};
  if (!n.is_container()) return n;
  node made{n.is_mapping() ? "dict" : n.type, nullptr};
  for (const auto& [k, child] : n.children) {
    where.push_back(k);
    if (auto kept = transform_model(child, where, seed))
      made.children.emplace_back(n.is_mapping() ? k : tagged::key(static_cast<std::int64_t>(made.children.size())),
                                 *std::move(kept));
    where.pop_back();
  }
  return made;
}

// PyTorch's _is_terminal and _traverse_obj, both versions, as _traverse.py has them (2.13).
struct torch_model {
  bool is_2_3;
  std::vector<std::pair<keys, const node*>> items{};

  bool is_terminal(const node& n) const {
    if (n.is_mapping() && !is_2_3) return false;
    if (!n.is_mapping() && n.type != "list") return true;
    for (const auto& [k, child] : n.children) {
      if ((child.is_mapping() || child.type == "list") && !is_terminal(child)) return false;
      if (child.type == "tensor") return false;
    }
    return true;
  }
  void traverse(const node& n, keys& where) {
    if (is_terminal(n)) {
      items.emplace_back(where, &n);
      return;
    }
    traverse_children(n, where);
  }
  void traverse_children(const node& n, keys& where) {
    for (const auto& [k, child] : n.children) {
      where.push_back(k);
      traverse(child, where);
      where.pop_back();
    }
  }
};

std::string dotted_model(const keys& where) {
  std::string text;
  for (std::size_t i = 0; i < where.size(); ++i) {
    if (i > 0) text += '.';
    text += where[i].index() == 0 ? std::to_string(std::get<0>(where[i])) : std::get<1>(where[i]);
  }
  return text;
}

// Every leaf and every empty container.
void typed_model(const node& n, keys& where, std::vector<std::pair<keys, const node*>>& items) {
  if (n.children.empty()) items.emplace_back(where, &n);
  for (const auto& [k, child] : n.children) {
    where.push_back(k);
    typed_model(child, where, items);
    where.pop_back();
  }
}

node random_root(random_tree::maker& make) {
  node root = make.tree(5);
  while (root.type != "dict") root = make.tree(5);
  return root;
}

template <class F>
void for_random_trees(int count, F f) {
  for (int seed = 0; seed < random_tree::runs(count); ++seed) {
    INFO("seed " << seed);
    random_tree::maker make(static_cast<std::uint64_t>(seed));
    f(make, static_cast<std::size_t>(seed));
  }
}

}  // namespace

TEST_CASE("visits meet the nodes that a recursive walk meets, in its order, with its paths") {
  for_random_trees(150, [](random_tree::maker& make, std::size_t seed) {
    const node root = make.tree(6);
    visit_model model{seed};
    const bool done = model.pre(root);
    std::vector<event> events;
    const bool same = visit(root, [&](const path& where, const node& n) {
      events.push_back({to_keys(where), word(n)});
      visit_model at{seed};
      at.where = events.back().where;
      return at.step();
    });
    CHECK(same == done);
    CHECK(events == model.events);

    visit_model post{seed};
    const bool post_done = post.post(root);
    events.clear();
    const bool post_same = visit_post(root, [&](const path& where, const node& n) {
      events.push_back({to_keys(where), word(n)});
      visit_model at{seed};
      at.where = events.back().where;
      return at.step() != visit_step::stop;
    });
    CHECK(post_same == post_done);
    CHECK(events == post.events);

    visit_model all{seed};
    std::vector<event> leaves;
    const std::function<void(const node&)> collect = [&](const node& n) {
      if (!n.is_container()) leaves.push_back({all.where, word(n)});
      all.each(n, [&](const node& child) { return collect(child), true; });
    };
    collect(root);
    events.clear();
    CHECK(visit_leaves(root, [&](const path& where, const node& n) { events.push_back({to_keys(where), word(n)}); }));
    CHECK(events == leaves);
  });
}

TEST_CASE("two trees are met together as a recursive walk meets them") {
  for_random_trees(150, [](random_tree::maker& make, std::size_t seed) {
    const node a = make.tree(6);
    const node b = make.like(a);
    keys where;
    std::vector<event> expected, events;
    const bool done = pair_model(&a, &b, where, seed, expected);
    const bool same = visit_together(a, b, [&](const path& at, const node* x, const node* y) {
      events.push_back({to_keys(at), (x ? word(*x) : "-") + " " + (y ? word(*y) : "-")});
      const std::size_t d = decision(events.back().where, seed, 200);
      return d == 0 ? visit_step::stop : d < 20 ? visit_step::over : visit_step::into;
    });
    CHECK(same == done);
    CHECK(events == expected);
  });
}

TEST_CASE("transform makes what a recursive rebuild makes") {
  for_random_trees(150, [](random_tree::maker& make, std::size_t seed) {
    const node root = make.tree(6);
    keys at;
    const auto expected = transform_model(root, at, seed);
    const auto made = transform(root, [&](const path& where, const node&) {
      const std::size_t d = decision(to_keys(where), seed, 12);
      if (d == 0 && !where.empty()) return transformed<node>::drop();
      if (d == 1) return transformed<node>::replace({"str", "replaced"});
      return transformed<node>::keep();
    });
    CHECK(made.value() == expected.value());
  });
}

TEST_CASE("the flat form leads back to the tree, and every policy gives the items of a recursive flattening") {
  for_random_trees(150, [](random_tree::maker& make, std::size_t) {
    const node root = random_root(make);
    const auto flat = flatten_tree(root).value();
    std::vector<std::uint8_t> is_tensor;
    std::vector<node> copies;
    for (const node* leaf : flat.leaves) {
      is_tensor.push_back(leaf->type == "tensor");
      copies.push_back(*leaf);
    }
    node plain = root;
    visit(plain, [](const path&, node& n) {
      if (n.type == "OrderedDict") n.type = "dict";
      return visit_step::into;
    });
    CHECK(build(flat.spec, copies).value() == plain);

    for (const key_policy policy : {key_policy::torch_dcp, key_policy::torch_dcp_2_3, key_policy::typed}) {
      std::vector<std::pair<keys, const node*>> expected;
      keys where;
      if (policy == key_policy::typed) {
        typed_model(root, where, expected);
      } else {
        torch_model model{policy == key_policy::torch_dcp_2_3};
        model.traverse_children(root, where);
        expected = std::move(model.items);
      }
      const auto items = items_of(flat.spec, is_tensor, policy).value();
      std::set<std::string> names;
      REQUIRE(items.size() == expected.size());
      for (std::size_t i = 0; i < items.size(); ++i) {
        CHECK(to_keys(items[i].where) == expected[i].first);
        CHECK(find(root, items[i].where) == expected[i].second);
        if (items[i].leaves > 0) {
          const node* first = find(root, items[i].where);
          while (first->is_container()) {  // go down to its first leaf
            std::size_t child = 0;
            while (flatten_tree(first->children[child].second).value().leaves.empty()) ++child;
            first = &first->children[child].second;
          }
          CHECK(flat.leaves[items[i].first_leaf] == first);
        }
        CHECK(flat.spec.path_of(items[i].node) == items[i].where);
        CHECK(items[i].name ==
              (policy == key_policy::typed ? to_string(items[i].where) : dotted_model(expected[i].first)));
        names.insert(items[i].name);
      }
      const auto named = flatten(flat.spec, is_tensor, policy);
      CHECK(named.has_value() == (names.size() == items.size()));
      if (policy == key_policy::typed) CHECK(named.has_value());
      if (named) CHECK(named.value() == items);
      if (!named) CHECK(named.error().code == errc::duplicate_key);
    }
  });
}

TEST_CASE("leaf paths in any order lead back to the shape, but for what has no leaf") {
  for_random_trees(150, [](random_tree::maker& make, std::size_t) {
    node root = random_root(make);
    // Empty containers leave no path, and the paths of a mapping 0 .. n-1 are those of a sequence; keep neither.
    visit_post(root, [](const path&, node& n) {
      n.type = n.is_mapping() ? "dict" : n.type == "tuple" ? "list" : n.type;
      if (n.is_container() && n.children.empty()) n = node{"int", 1};
      if (n.is_mapping()) n.children.emplace_back("not an index", node{"int", 2});
    });
    const auto flat = flatten_tree(root).value();
    std::vector<path> paths = flat.spec.leaf_paths();
    std::vector<std::size_t> order(paths.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto ordered = unflatten(paths).value();
    CHECK(ordered.spec == flat.spec);
    CHECK(ordered.leaf_order == order);
    for (std::size_t i = paths.size(); i-- > 1;) {
      const std::size_t j = make.below(i + 1);
      std::swap(paths[i], paths[j]);
      std::swap(order[i], order[j]);
    }
    const auto shuffled = unflatten(paths).value();
    std::vector<path> found(paths.size());
    const auto leaves = shuffled.spec.leaf_paths();
    for (std::size_t i = 0; i < leaves.size(); ++i) found[shuffled.leaf_order[i]] = leaves[i];
    CHECK(found == paths);
    std::vector<node> values;
    for (const std::size_t from : shuffled.leaf_order) values.push_back(*flat.leaves[order[from]]);
    const node back = build(shuffled.spec, std::move(values)).value();
    CHECK(visit_together(root, back, [](const path&, const node* a, const node* b) {
      return a && b && a->type == b->type && a->leaf == b->leaf ? visit_step::into : visit_step::stop;
    }));
  });
}
