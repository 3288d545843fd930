// SPDX-License-Identifier: Apache-2.0
// Tests walking, transforming, flattening, and comparing state dicts, and trees of other types.
#include <array_tensor.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <random_seed.hpp>
#include <string>
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

using change = leaf_change<array_tensor>;

array_tensor tensor(std::int64_t v = 0) {
  return array_tensor::filled({2, 3}, v);
}

// {"model": {"w": T, "b": T}, "steps": [1, 2], "betas": (0.9, T), "list": [T, {"x": 1}], "empty": {}, 0: 5}
dict example() {
  state_dict_builder<array_tensor> b;
  b.begin(node_kind::mapping);
  b.begin("model", node_kind::mapping).value("w", tensor(1)).value("b", tensor(2)).end();
  b.begin("steps", node_kind::sequence).value(1).value(2).end();
  b.begin("betas", node_kind::tuple).value(0.9).value(tensor(3)).end();
  b.begin("list", node_kind::sequence).value(tensor(4)).begin(node_kind::mapping).value("x", 1).end().end();
  b.begin("empty", node_kind::mapping).end();
  b.value(0, 5).end();
  return b.finish().value();
}

std::vector<std::string> names(const std::vector<named_part<array_tensor>>& parts) {
  std::vector<std::string> found;
  for (const auto& part : parts) found.push_back(part.name);
  return found;
}

// A user's tree.
struct user_node {
  std::vector<user_node> entries;
  std::string key;
  std::int64_t number = 0;
  bool is_leaf = true;
};

}  // namespace

template <>
struct shardmesh::node_adapter<user_node> {
  static node_kind kind(const user_node& n) { return n.is_leaf ? node_kind::leaf : node_kind::mapping; }
  template <class N, class Visit>
  static void children(N& n, Visit&& visit) {
    for (auto& child : n.entries)
      if (!visit(path_key(child.key), child)) return;
  }
  static user_node make(node_kind, std::vector<std::pair<path_key, user_node>> children) {
    user_node made;
    made.is_leaf = false;
    for (auto& [key, child] : children) {
      child.key = std::string(key.name());
      made.entries.push_back(std::move(child));
    }
    return made;
  }
};

static_assert(state_node<dict_node<array_tensor>> && state_node<dict_node<const array_tensor>>);
static_assert(!buildable_state_node<dict_node<array_tensor>>);

TEST_CASE("visit sees containers and leaves in order, may write to leaves, prunes and stops") {
  dict d = example();
  std::vector<std::string> seen;
  CHECK(visit(d, [&](const path& where, dict_node<array_tensor>& node) {
    seen.push_back(to_string(where));
    if (node.is_leaf() && node.value().integer()) node.value() = *node.value().integer() * 10;
    return to_string(where) == "model" ? visit_step::over : visit_step::into;
  }));
  CHECK(seen == std::vector<std::string>{"", "model", "steps", "steps[0]", "steps[1]", "betas", "betas[0]", "betas[1]",
                                         "list", "list[0]", "list[1]", "list[1].x", "empty", "[0]"});
  CHECK(*d.find({"steps", 1})->integer() == 20);
  CHECK(*d.find({"list", 1, "x"})->integer() == 10);
  const dict& constant = d;
  int count = 0;
  CHECK(!visit(constant, [&](const path&, dict_node<const array_tensor>&) {
    return ++count == 3 ? visit_step::stop : visit_step::into;
  }));
  CHECK(count == 3);
  auto root = root_of(d);
  CHECK(find(root, {"list", 0})->value().tensor()->values.front() == 4);
}

TEST_CASE("visit_together pairs the places of two state dicts") {
  dict a = example(), b = example();
  b.erase({"steps"}).value();
  b.set({"model", "new"}, 1).value();
  std::vector<std::string> lonely;
  visit_together(a, std::as_const(b),
                 [&](const path& where, dict_node<array_tensor>* l, dict_node<const array_tensor>* r) {
                   if (!l) lonely.push_back("right " + to_string(where));
                   if (!r) lonely.push_back("left " + to_string(where));
                   if (l && r && l->is_leaf() && l->value().integer()) l->value() = 77;
                   return visit_step::into;
                 });
  CHECK(lonely == std::vector<std::string>{"right model.new", "left steps"});
  CHECK(*a.find({0})->integer() == 77);
}

TEST_CASE("transform keeps, replaces and drops leaves") {
  dict other;
  other.set({"lo"}, tensor(8)).value();
  other.set({"hi"}, tensor(9)).value();
  const dict made = transform(example(), [&](const path& where, value& leaf) {
                      if (where == path{"model", "w"}) return change::replace(other);
                      if (where == path{"steps", 0}) return change::drop();
                      if (where == path{"list", 1, "x"}) return change::drop();
                      if (leaf.floating()) return change::replace(*leaf.floating() / 2);
                      return change::keep();
                    }).value();
  CHECK(*made.find({"steps", 0})->integer() == 2);
  CHECK(made.find({"model", "w", "hi"})->tensor()->values.front() == 9);
  CHECK(made.kind({"list", 1}) == node_kind::mapping);
  CHECK(*made.find({"betas", 0})->floating() == 0.45);
  CHECK(made.size() == 8);
  const dict leaf = example().subtree({"model", "w"}).value();
  CHECK(transform(leaf, [](const path&, value&) { return change::drop(); }).error().code == errc::invalid_argument);
  CHECK(transform(leaf, [&](const path&, value&) { return change::replace(other); }).value() == other);
}

TEST_CASE("transform moves tensors that only move") {
  state_dict<unique_tensor> d;
  d.set({"a"}, unique_tensor{std::make_unique<array_tensor>(tensor(1))}).value();
  const array_tensor* held = d.find({"a"})->tensor()->held.get();
  auto made = transform(std::move(d), [](const path&, state_value<unique_tensor>&) {
                return leaf_change<unique_tensor>::keep();
              }).value();
  auto parts = flatten(std::move(made), key_policy::torch_dcp).value();
  auto back = unflatten(std::move(parts)).value();
  CHECK(back.find({"a"})->tensor()->held.get() == held);
}

TEST_CASE("flatten gives PyTorch's names and keeps what PyTorch keeps whole") {
  auto parts = flatten(example(), key_policy::torch_dcp).value();
  CHECK(names(parts) == std::vector<std::string>{"model.w", "model.b", "steps", "betas", "list.0", "list.1.x", "0"});
  CHECK(parts[2].container()->kind({}) == node_kind::sequence);
  CHECK(*parts[2].container()->find({1})->integer() == 2);
  CHECK(parts[3].container()->kind({}) == node_kind::tuple);
  dict expected = example();
  expected.erase({"empty"}).value();
  const tree_spec spec = expected.spec();
  CHECK(unflatten(parts).value() == expected);
  std::reverse(parts.begin(), parts.end());
  CHECK(unflatten(parts, spec).value() == expected);
  CHECK(names(flatten(example(), key_policy::torch_dcp_2_3).value()) ==
        std::vector<std::string>{"model.w", "model.b", "steps", "betas", "list.0", "list.1", "empty", "0"});
}

TEST_CASE("the typed policy names every place and its round trip with the spec is exact") {
  const auto parts = flatten(example(), key_policy::typed).value();
  CHECK(names(parts) == std::vector<std::string>{"model.w", "model.b", "steps[0]", "steps[1]", "betas[0]", "betas[1]",
                                                 "list[0]", "list[1].x", "empty", "[0]"});
  CHECK(unflatten(parts, example().spec()).value() == example());
  CHECK(items_of(example(), key_policy::typed).value().size() == parts.size());
}

TEST_CASE("parts that do not fit a shape are refused by name") {
  auto parts = flatten(example(), key_policy::typed).value();
  parts[0].where = {"model", "v"};
  CHECK(unflatten(parts, example().spec()).error().key == "model.v");
  parts[0].where = {"model"};
  CHECK(unflatten(parts, example().spec()).error().code == errc::missing_key);
  parts[0].where = {"model", "b"};
  CHECK(unflatten(parts, example().spec()).error().code == errc::duplicate_key);
  parts.erase(parts.begin());
  CHECK(unflatten(parts, example().spec()).error().code == errc::missing_key);
  CHECK(unflatten(parts, example().spec()).error().key == "model.w");
  dict d = example();
  d.set({"model.w"}, 1).value();
  CHECK(flatten(d, key_policy::torch_dcp).error().code == errc::duplicate_key);
  CHECK(flatten(d, key_policy::typed));
}

TEST_CASE("random state dicts survive flatten and unflatten under every policy") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (int run = 0; run < 500; ++run) {
    state_dict_builder<array_tensor> b;
    b.begin(node_kind::mapping);
    int depth = 1, key = 0;
    for (std::size_t calls = random() % 40; calls-- > 0;) {
      const path_key name = "k" + std::to_string(key++);
      switch (random() % 4) {
        case 0:
          b.value(name, tensor(key));
          break;
        case 1:
          b.value(name, key);
          break;
        case 2:
          b.begin(name, static_cast<node_kind>(1 + random() % 3));
          ++depth;
          break;
        default:
          if (depth > 1) --depth, b.end();
      }
    }
    while (depth-- > 0) b.end();
    const dict d = b.finish().value();
    for (const key_policy policy : {key_policy::torch_dcp, key_policy::torch_dcp_2_3, key_policy::typed}) {
      auto parts = flatten(d, policy).value();
      std::shuffle(parts.begin(), parts.end(), random);
      const dict back = unflatten(parts, d.spec()).value();
      CHECK(back.spec() == d.spec());
      CHECK(back == d);
    }
  }
}

TEST_CASE("a tree of another type becomes a state dict and comes back") {
  const auto leaf = [](const char* key, std::int64_t number) { return user_node{{}, key, number, true}; };
  user_node root{{leaf("a", 1), {{leaf("c", 2)}, "b", 0, false}}, "", 0, false};
  dict d = state_dict_from(root, [](user_node& n) { return value(n.number); }).value();
  CHECK(*d.find({"b", "c"})->integer() == 2);
  const user_node back =
      tree_from<user_node>(dict(d), [](value& v) { return user_node{{}, "", *v.integer(), true}; }).value();
  CHECK(state_dict_from(back, [](const user_node& n) { return value(n.number); }).value() == d);
  const auto failing = [](user_node&) -> result<value> { return fail(errc::unsupported, "no numbers"); };
  CHECK(state_dict_from(root, failing).error().code == errc::unsupported);
}

TEST_CASE("equality ignores the order of a mapping's keys and sees everything else") {
  dict a, b;
  a.set({"x"}, 1).value();
  a.set({"y"}, tensor(1)).value();
  b.set({"y"}, tensor(1)).value();
  b.set({"x"}, 1).value();
  CHECK(a == b);
  CHECK(digest(a).value() == digest(b).value());
  CHECK(diff(a, b).equal());
  b.set({"y"}, tensor(2)).value();
  CHECK(a != b);
  CHECK(equal(a, b, {.tensor_values = false}));
  CHECK(digest(a).value() == digest(b).value());
  b.set({"x"}, true).value();
  CHECK(!equal(a, b, {.tensor_values = false}));
  CHECK(digest(a).value() != digest(b).value());
  CHECK(value(std::numeric_limits<double>::quiet_NaN()) == value(std::numeric_limits<double>::quiet_NaN()));
}

TEST_CASE("diff names what differs at each place, and counts beyond its limit") {
  const auto difference = [](value a, value b) {
    dict l, r;
    l.set({"layers", 0, "w"}, std::move(a)).value();
    r.set({"layers", 0, "w"}, std::move(b)).value();
    const state_diff_report found = diff(l, r);
    CHECK(found.total <= 1);
    CHECK(found.equal() == (l == r));
    return found.equal() ? std::string() : to_string(found.differences.front());
  };
  CHECK(difference(1, 1).empty());
  CHECK(difference(1, 2) == "layers[0].w: 1 against 2");
  CHECK(difference(1, 1.0) == "layers[0].w: int against float");
  CHECK(difference("a\n", "b") == "layers[0].w: \"a\\n\" against \"b\"");
  CHECK(difference(0.5, 1.5) == "layers[0].w: 0.5 against 1.5");
  CHECK(difference(true, false) == "layers[0].w: true against false");
  CHECK(difference(std::vector<std::byte>(3), std::vector<std::byte>{{}, std::byte{1}, {}}) ==
        "layers[0].w: 3 bytes, which differ at byte 1");
  CHECK(difference(opaque_object{"a", {}}, opaque_object{"b", {}}) == "layers[0].w: \"a\" against \"b\"");
  array_tensor t = tensor(1), u = tensor(1);
  u.values[4] = 9;
  CHECK(difference(t, u) == "layers[0].w: 1 of 6 elements differ, first at [1, 1]: 1 against 9");
  u = tensor(1);
  u.type = dtype::uint64;
  CHECK(difference(t, u) == "layers[0].w: dtype int64 against uint64");
  CHECK(difference(t, array_tensor::filled({3, 2}, 1)) == "layers[0].w: shape [2, 3] against [3, 2]");
  u = tensor(1);
  u.requires_grad = true;
  CHECK(difference(t, u).starts_with("layers[0].w: properties int64, strided, requires_grad false"));
  u = tensor(1);
  u.where = {device_type::cuda, 1};
  CHECK(difference(t, u) == "layers[0].w: placement cpu against cuda:1");
  CHECK(difference(u, u).starts_with(
      "layers[0].w: cannot be read: the memory is not host memory, and no backend reaches it"));

  const auto mesh = device_mesh::make(extents{2}).value();
  const auto on = [&](placement p, const array_tensor& local) {
    return value(dtensor<array_tensor>::make(layout::make(mesh, {p}, {4, 3}).value(), 0, local).value());
  };
  CHECK(difference(on(placement::shard(0), t), on(placement::replicate(), array_tensor::filled({4, 3}))) ==
        "layers[0].w: layout [4, 3] on 2 as S(0) against [4, 3] on 2 as R");
  CHECK(difference(on(placement::shard(0), t), on(placement::shard(0), tensor(2))) ==
        "layers[0].w: 6 of 6 elements differ, first at [0, 0]: 1 against 2");

  const auto sharded = [&](const std::string& where, std::int64_t split, std::int64_t v, const std::string& other) {
    const shard_metadata mine = shard_metadata::make(extents{0}, extents{split}, where).value();
    const shard_metadata rest = shard_metadata::make(extents{split}, extents{8 - split}, other).value();
    auto local = shard<array_tensor>::make(array_tensor::filled({split}, v), mine).value();
    return value(sharded_tensor<array_tensor>::make({local}, {{mine, rest}, {8}, {.type = dtype::int64}},
                                                    rank_group::world(3), 0)
                     .value());
  };
  CHECK(difference(sharded("rank:0/cpu", 4, 1, "rank:1/cpu"), sharded("rank:0/cpu", 4, 1, "rank:1/cpu")).empty());
  CHECK(difference(sharded("rank:0/cpu", 4, 1, "rank:1/cpu"), sharded("rank:0/cpu", 5, 1, "rank:1/cpu")) ==
        "layers[0].w: shard 0 [0:4) against [0:5)");
  CHECK(difference(sharded("rank:0/cpu", 4, 1, "rank:1/cpu"), sharded("rank:0/cpu", 4, 1, "rank:2/cpu")) ==
        "layers[0].w: shard 1 on rank:1/cpu against rank:2/cpu");
  CHECK(difference(sharded("rank:0/cpu", 4, 1, "rank:1/cpu"), sharded("rank:0/cpu", 4, 2, "rank:1/cpu")) ==
        "layers[0].w: shard [0:4): 4 of 4 elements differ, first at [0]: 1 against 2");

  dict l, r;
  for (int i = 0; i < 300; ++i) l.set({std::to_string(i)}, i).value();
  const state_diff_report many = diff(l, r);
  CHECK(many.total == 300);
  CHECK(many.differences.size() == 100);
  CHECK(to_string(many.differences[0]) == "[\"0\"]: only on the left: int");
  CHECK(diff(r, l, {.max_differences = 1}).differences.at(0).kind == difference_kind::only_right);
  l.set({"c"}, 1).value();
  r.set({"c", "d"}, 1).value();
  CHECK(diff(l, r).total == 301);
}

TEST_CASE("a difference of state dicts has the kinds and counts of a difference of checkpoints") {
  const auto first = [](value a, value b) {
    dict l, r;
    l.set({"w"}, std::move(a)).value();
    r.set({"w"}, std::move(b)).value();
    return diff(l, r).differences.at(0);
  };
  array_tensor other = tensor(1);
  other.values[4] = 9;
  const path_difference elements = first(tensor(1), other);
  CHECK(elements.where == path{"w"});
  CHECK(elements.kind == difference_kind::values);
  CHECK(elements.different == 1);
  CHECK(elements.elements == 6);
  CHECK(elements.first_index == extents{1, 1});
  CHECK(elements.largest == 8.0);
  CHECK(first(1, 2).kind == difference_kind::object);
  CHECK(first(1, 1.0).kind == difference_kind::kind);
  CHECK(first(opaque_object{"a", {}}, opaque_object{"b", {}}).kind == difference_kind::object);
  other = tensor(1);
  other.where = {device_type::cuda, 1};
  CHECK(first(tensor(1), other).kind == difference_kind::placement);
  CHECK(first(other, other).kind == difference_kind::unreadable);
}

TEST_CASE("the digest is of paths, kinds, dtypes, shapes and layouts, and the same everywhere") {
  const auto of = [](const path& where, value v) {
    dict d;
    d.set(where, std::move(v)).value();
    return digest(d).value();
  };
  CHECK(of({"a"}, 1) == of({"a"}, 2));
  CHECK(of({"a"}, 1) != of({"b"}, 1));
  CHECK(of({"a", 0}, 1) != of({"a", "0"}, 1));
  CHECK(of({"a", "b"}, 1) != of({"a.b"}, 1));
  CHECK(of({"a"}, tensor()) != of({"a"}, array_tensor::filled({3, 2})));
  array_tensor other = tensor();
  other.type = dtype::float64;
  CHECK(of({"a"}, tensor()) != of({"a"}, other));
  const auto local_view = [&](std::int32_t rank, bool swapped) {
    std::vector<shard_metadata> all{shard_metadata::make(extents{0}, extents{4}, "rank:0/cuda:0").value(),
                                    shard_metadata::make(extents{4}, extents{4}, "rank:1/cuda:1").value()};
    const auto mine = all[static_cast<std::size_t>(rank)];
    if (swapped) std::swap(all[0], all[1]);
    return sharded_tensor<array_tensor>::make({shard<array_tensor>::make(array_tensor::filled({4}), mine).value()},
                                              {all, {8}, {.type = dtype::int64}}, rank_group::world(2), rank)
        .value();
  };
  CHECK(of({"a"}, local_view(0, false)) == of({"a"}, local_view(1, true)));
  // A fixed value, the same on every machine.
  const digest128 pinned = of({"layers", 0, "w"}, tensor());
  CHECK(pinned == digest128{0xe41508b2f8f16930, 0x266de1814efae131});
}
