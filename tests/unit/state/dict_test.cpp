// SPDX-License-Identifier: Apache-2.0
// Compares state_dict with a model of nested maps: building, finding, setting, and erasing.
#include <array_tensor.hpp>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <random_seed.hpp>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>
import shardmesh.state;
import shardmesh.test.states;

using namespace shardmesh;
using namespace states;
using test::array_tensor;
using test::unique_tensor;

namespace {

static_assert(std::copyable<dict> && std::equality_comparable<value>);
static_assert(std::movable<state_dict<unique_tensor>> && !std::copy_constructible<state_dict<unique_tensor>>);

// {"w": tensor, "list": [1, {"x": 2.5}], "pair": (true, "a"), "empty": {}, 3: none}
dict example() {
  state_dict_builder<array_tensor> b;
  b.begin(node_kind::mapping);
  b.value("w", array_tensor::filled({2, 3}, 7));
  b.begin("list", node_kind::sequence).value(1).begin(node_kind::mapping).value("x", 2.5).end().end();
  b.begin("pair", node_kind::tuple).value(true).value("a").end();
  b.begin("empty", node_kind::mapping).end();
  b.value(3, {}).end();
  return b.finish().value();
}

dict changed(const path& where, value v) {
  dict d = example();
  d.set(where, std::move(v)).value();
  return d;
}

error refused(const path& where) {
  dict d = example();
  const auto set = d.set(where, 1);
  CHECK(d == example());
  REQUIRE(!set);
  return set.error();
}

}  // namespace

TEST_CASE("a state dict is built call by call and its leaves are found by typed paths") {
  dict d = example();
  CHECK(d.size() == 6);
  CHECK(d.find({"w"})->tensor()->values.front() == 7);
  CHECK(*d.find({"list", 0})->integer() == 1);
  CHECK(*d.find({"list", -1, "x"})->floating() == 2.5);
  CHECK(*d.find({"pair", 1})->text() == "a");
  CHECK(d.find({3})->is_none());
  CHECK(d.find({"3"}) == nullptr);
  CHECK(d.find({"list"}) == nullptr);
  CHECK(d.contains({"list"}));
  CHECK(d.kind({"list"}) == node_kind::sequence);
  CHECK(d.kind({"pair"}) == node_kind::tuple);
  CHECK(d.kind({"empty"}) == node_kind::mapping);
  CHECK(d.kind({}) == node_kind::mapping);
  CHECK(!d.kind({"list", 2}));
  CHECK(!d.contains({"list", -3}));
  CHECK(!d.contains({"list", "0"}));
  CHECK(!d.contains({"w", 0}));
  CHECK(dict().empty());
  CHECK(dict().kind({}) == node_kind::mapping);
}

TEST_CASE("every alternative of a value has its name and its observer") {
  const array_tensor t = array_tensor::filled({4});
  const auto kind = [](const value& v) { return std::string(name(v.kind())); };
  CHECK(kind({}) == "none");
  CHECK(kind(true) == "bool");
  CHECK(kind(std::int16_t{3}) == "int");
  CHECK(kind(0.5F) == "float");
  CHECK(kind("text") == "str");
  CHECK(kind(std::vector<std::byte>(3)) == "bytes");
  CHECK(kind(opaque_object{"torch.Size", {}}) == "object");
  CHECK(kind(t) == "tensor");
  const auto l = layout::make(device_mesh::make(extents{2}).value(), {placement::shard(0)}, {8}).value();
  const value d = dtensor<array_tensor>::make(l, 1, t).value();
  CHECK(kind(d) == "dtensor");
  CHECK(d.dtensor()->rank() == 1);
  CHECK(d.tensor() == nullptr);
  CHECK(d.sharded_tensor() == nullptr);
  const shard_metadata mine = shard_metadata::make(extents{0}, extents{4}, "rank:0/cpu").value();
  const value s = sharded_tensor<array_tensor>::make({shard<array_tensor>::make(t, mine).value()},
                                                     {{mine}, {4}, {.type = dtype::int64}}, {}, 0)
                      .value();
  CHECK(kind(s) == "sharded tensor");
  CHECK(s.sharded_tensor()->size() == extents{4});
  CHECK((is_tensor(s) && is_tensor(d) && is_tensor(value(t)) && !is_tensor(value(1)) && !is_tensor(value())));
  CHECK(s == value(s));
  CHECK(s != d);
}

TEST_CASE("set replaces a leaf or a container and makes what is missing") {
  CHECK(*changed({"w"}, 5).find({"w"})->integer() == 5);
  CHECK(*changed({"list"}, 5).find({"list"})->integer() == 5);
  CHECK(changed({"list"}, 5).size() == 5);
  CHECK(*changed({"pair", 0}, 5).find({"pair", 0})->integer() == 5);
  CHECK(*changed({"new", "a", 2, "b"}, 5).find({"new", "a", 2, "b"})->integer() == 5);
  CHECK(changed({"new", "a", 2, "b"}, 5).find({"new", "a", 1})->is_none());
  CHECK(changed({"new", "a", 2, "b"}, 5).kind({"new", "a"}) == node_kind::sequence);
  CHECK(*changed({"list", 4}, 5).find({"list", -1})->integer() == 5);
  CHECK(changed({"list", 4}, 5).find({"list", 3})->is_none());
  CHECK(*changed({"list", -2}, 5).find({"list", 0})->integer() == 5);
  CHECK(*changed({"empty", 0}, 5).find({"empty", 0})->integer() == 5);
  CHECK(changed({"empty", 0}, 5).kind({"empty"}) == node_kind::mapping);
  dict d = changed({"list", 4}, 5);
  d.set({"list", 3, "deep", 1}, 6).value();
  CHECK(*d.find({"list", 3, "deep", 1})->integer() == 6);
  CHECK(*d.find({"list", 4})->integer() == 5);
}

TEST_CASE("a set that is refused names the path and changes nothing") {
  CHECK(refused({}).code == errc::invalid_argument);
  CHECK(refused({"w", "x"}).code == errc::invalid_argument);
  CHECK(refused({"w", "x"}).key == "w.x");
  CHECK(refused({"w", "x"}).expected == "a container at w");
  CHECK(refused({3, "x"}).code == errc::invalid_argument);  // an empty leaf, but in a mapping and not in a list
  CHECK(refused({"list", "x"}).code == errc::invalid_argument);
  CHECK(refused({"list", "x", 0}).key == "list.x");
  CHECK(refused({"list", -3}).code == errc::out_of_bounds);
  CHECK(refused({"list", -3}).expected == "at least -2");
  CHECK(refused({"pair", 2}).code == errc::out_of_bounds);
  CHECK(refused({"new", -1}).code == errc::out_of_bounds);
  CHECK(refused({"new", 1 << 21}).code == errc::out_of_bounds);
  CHECK(refused({"new", 1 << 19, (1 << 19) + 1}).code == errc::out_of_bounds);
  CHECK(refused({"list", std::int64_t{1} << 62}).code == errc::out_of_bounds);
}

TEST_CASE("erase takes away leaves and containers") {
  dict d = example();
  d.erase({"list", 0}).value();
  CHECK(*d.find({"list", 0, "x"})->floating() == 2.5);
  d.erase({"pair"}).value();
  CHECK(d.size() == 3);
  CHECK(!d.contains({"pair"}));
  CHECK(d.contains({"empty"}));
  d.erase({"empty"}).value();
  CHECK(!d.contains({"empty"}));
  CHECK(d.erase({"nothing"}).error().code == errc::missing_key);
  CHECK(d.erase({"nothing"}).error().key == "nothing");
  CHECK(d.erase({}).error().code == errc::invalid_argument);
  CHECK(example().erase({"pair", 0}).error().hint == "set the element to an empty value instead");
}

TEST_CASE("a part of a state dict is a state dict, copied or taken out") {
  dict d = example();
  const dict list = d.subtree({"list"}).value();
  CHECK(list.kind({}) == node_kind::sequence);
  CHECK(*list.find({1, "x"})->floating() == 2.5);
  CHECK(d.subtree({"w"}).value().find({})->tensor() != nullptr);
  CHECK(d.subtree({"none"}).error().code == errc::missing_key);
  CHECK(d.extract({"list"}).value() == list);
  CHECK(!d.contains({"list"}));
  CHECK(*d.find({"pair", 1})->text() == "a");
  CHECK(d.extract({"list"}).error().code == errc::missing_key);
}

TEST_CASE("a state dict of tensors that only move is set, extracted and taken apart") {
  state_dict<unique_tensor> d;
  d.set({"a", 0}, unique_tensor{std::make_unique<array_tensor>(array_tensor::filled({2}, 1))}).value();
  d.set({"a", 1}, unique_tensor{std::make_unique<array_tensor>(array_tensor::filled({2}, 2))}).value();
  const unique_tensor* where = d.find({"a", 1})->tensor();
  const array_tensor* held = where->held.get();
  state_dict<unique_tensor> part = d.extract({"a", 1}).value();
  CHECK(part.find({})->tensor()->held.get() == held);
  CHECK(d.size() == 1);
}

TEST_CASE("paths and values in any order make the same state dict, and a list of paths that cannot be is refused") {
  std::vector<state_entry<array_tensor>> entries;
  entries.emplace_back(path{"b", 1}, 2);
  entries.emplace_back(path{"a"}, "x");
  entries.emplace_back(path{"b", 0}, 1);
  entries.emplace_back(path{"c", 2}, 3);
  const dict d = build_state_dict(entries).value();
  CHECK(*d.find({"b", 0})->integer() == 1);
  CHECK(d.kind({"b"}) == node_kind::sequence);
  CHECK(d.find({"c", 0})->is_none());
  CHECK(d.find({"c", 1})->is_none());
  entries.emplace_back(path{"a", "y"}, 4);
  CHECK(build_state_dict(entries).error().code == errc::invalid_argument);
  entries.back().first = {"a"};
  CHECK(build_state_dict(entries).error().code == errc::duplicate_key);
  CHECK(build_state_dict<array_tensor>({}).value() == dict());
  CHECK(dict::make(d.spec(), {}).error().expected == "6 leaves");
}

namespace {

// The model of the property test: nested maps of leaves.
struct model {
  node_kind kind = node_kind::leaf;
  int number = 0;  // of a leaf; 0 means none
  std::vector<std::pair<path_key, model>> children;
  model* child(const path_key& key) {
    path_key wanted = key;
    if (kind != node_kind::mapping && key.is_index() && key.index() < 0)
      wanted = key.index() + static_cast<std::int64_t>(children.size());
    for (auto& [k, c] : children)
      if (k == wanted) return &c;
    return nullptr;
  }
};

// PyTorch's set_element on the model, with typed keys; false where it raises.
bool set(model& m, const path& where, std::size_t depth, int number) {
  if (depth == where.size()) {
    m = {node_kind::leaf, number, {}};
    return true;
  }
  const path_key& key = where[depth];
  if (m.kind == node_kind::leaf || m.kind == node_kind::tuple) {
    if (m.kind == node_kind::leaf) return false;
    model* c = m.child(key);
    return c != nullptr && set(*c, where, depth + 1, number);
  }
  const auto fresh = [&] {
    model made;
    if (depth + 1 < where.size()) made.kind = where[depth + 1].is_index() ? node_kind::sequence : node_kind::mapping;
    return made;
  };
  if (m.kind == node_kind::sequence) {
    if (!key.is_index()) return false;
    if (key.index() < 0 && m.child(key) == nullptr) return false;
    while (static_cast<std::int64_t>(m.children.size()) <= key.index())
      m.children.emplace_back(static_cast<std::int64_t>(m.children.size()), model{});
    model* c = m.child(key);
    if (c->kind == node_kind::leaf && c->number == 0) *c = fresh();
    return set(*c, where, depth + 1, number);
  }
  if (m.child(key) == nullptr) m.children.emplace_back(key, fresh());
  return set(*m.child(key), where, depth + 1, number);
}

void add(state_dict_builder<array_tensor>& b, const model& m) {
  for (const auto& [key, c] : m.children) {
    if (c.kind == node_kind::leaf) {
      b.value(key, c.number == 0 ? value() : value(c.number));
      continue;
    }
    b.begin(key, c.kind);
    add(b, c);
    b.end();
  }
}

dict dict_of(const model& m) {
  state_dict_builder<array_tensor> b;
  b.begin(m.kind);
  add(b, m);
  b.end();
  return b.finish().value();
}

void numbers(const model& m, std::vector<int>& found) {
  if (m.kind == node_kind::leaf) found.push_back(m.number);
  for (const auto& [key, c] : m.children) numbers(c, found);
}

}  // namespace

TEST_CASE("random sets, erases and look-ups agree with nested maps") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  const auto key = [&]() -> path_key {
    if (random() % 2 == 0) return std::string(1, static_cast<char>('a' + random() % 3));
    return static_cast<std::int64_t>(random() % 5) - 1;
  };
  for (int run = 0; run < 300; ++run) {
    model m;
    m.kind = node_kind::mapping;
    dict d;
    if (random() % 3 == 0) {
      m.children.emplace_back("t", model{node_kind::tuple, 0, {{0, model{}}, {1, model{node_kind::leaf, 1000, {}}}}});
      d = dict_of(m);
    }
    for (int step = 1; step < 60; ++step) {
      path where;
      for (std::size_t depth = 1 + random() % 4; depth-- > 0;) where.push_back(key());
      if (random() % 8 == 0) {
        model* parent = &m;
        for (std::size_t i = 0; i + 1 < where.size() && parent; ++i) parent = parent->child(where[i]);
        model* child = parent ? parent->child(where.back()) : nullptr;
        const bool can = child != nullptr && parent->kind != node_kind::tuple;
        CHECK(d.erase(where).has_value() == can);
        if (!can) continue;
        parent->children.erase(std::find_if(parent->children.begin(), parent->children.end(),
                                            [&](auto& c) { return &c.second == child; }));
        if (parent->kind == node_kind::sequence)
          for (std::size_t i = 0; i < parent->children.size(); ++i)
            parent->children[i].first = static_cast<std::int64_t>(i);
      } else {
        model after = m;
        const bool can = set(after, where, 0, step);
        CHECK(d.set(where, step).has_value() == can);
        if (can) m = after;
      }
      path probe;
      for (std::size_t depth = random() % 5; depth-- > 0;) probe.push_back(key());
      model* there = &m;
      for (std::size_t i = 0; i < probe.size() && there; ++i) there = there->child(probe[i]);
      REQUIRE(d.kind(probe) == (there ? std::optional(there->kind) : std::nullopt));
      if (there && there->kind == node_kind::leaf) {
        const value* found = d.find(probe);
        REQUIRE(found != nullptr);
        CHECK((found->is_none() ? 0 : *found->integer()) == there->number);
      }
    }
    const dict expected = dict_of(m);
    CHECK(d.spec() == expected.spec());
    CHECK(d == expected);
    std::vector<int> leaves;
    numbers(m, leaves);
    REQUIRE(leaves.size() == d.size());
    for (std::size_t i = 0; i < leaves.size(); ++i)
      CHECK((d.leaves()[i].is_none() ? 0 : *d.leaves()[i].integer()) == leaves[i]);
  }
}

TEST_CASE("leaves of one dict are found from many threads at once") {
  dict d;
  for (int i = 0; i < 2000; ++i) d.set({"layer", std::to_string(i), "w"}, i).value();
  for (int round = 0; round < 20; ++round) {
    const dict fresh = d;  // its index is not built yet
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (int i = t; i < 2000; i += 7) {
          const value* found = fresh.find({"layer", std::to_string(i), "w"});
          if (found == nullptr || *found->integer() != i) ++wrong;
        }
      });
    for (std::thread& t : threads) t.join();
    CHECK(wrong == 0);
  }
}

TEST_CASE("a path a hundred thousand keys long is set, found and erased") {
  path where;
  for (int i = 0; i < 100000; ++i) where.push_back(i % 2 == 0 ? path_key("k") : path_key(0));
  dict d;
  d.set(where, 5).value();
  CHECK(*d.find(where)->integer() == 5);
  CHECK(d == dict(d));
  d.erase(where).value();
  CHECK(!d.contains(where));
  CHECK(d.size() == 0);
}
