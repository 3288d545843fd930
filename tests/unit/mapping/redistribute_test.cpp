// SPDX-License-Identifier: Apache-2.0
// Tests moves between ranks with a mapping: random mappings and layouts against the model of elements, and the fewest
// bytes, counted element by element.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <dice.hpp>
#include <map>
#include <random_seed.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "random_mappings.hpp"
#include "rank_tensors.hpp"
#include "small_tensors.hpp"

import shardmesh.checkpoint;
import shardmesh.comm;
import shardmesh.layout;
import shardmesh.mapping;
import shardmesh.transfer;

using namespace shardmesh;
using namespace rank_tensors;
using small_tensors::counted;
using small_tensors::tensor;
using small_tensors::tensors;

namespace {

// The tensors of one convention, and the distribution of each.
struct placed_tensors {
  tensors whole;
  std::map<std::string, distribution> where;
};

distribution random_distribution(dice& roll, const extents& shape, std::int32_t world) {
  const std::int64_t outer = 1 + roll.below(world), inner = 1 + roll.below(world / outer);
  std::vector<placement> placements;
  for (int i = 0; i < 2; ++i)
    placements.push_back(shape.rank() == 0 || roll.one_in(3)
                             ? placement::replicate()
                             : placement::shard(static_cast<std::int32_t>(roll.one_of(shape.rank()))));
  return distribute(layout::make(device_mesh::make({outer, inner}).value(), placements, shape).value()).value();
}

placed_tensors placed(dice& roll, const tensors& whole, std::int32_t world) {
  placed_tensors made{whole, {}};
  for (const auto& [key, one] : whole) made.where.emplace(key, random_distribution(roll, one.shape, world));
  return made;
}

tensors locals_of(const placed_tensors& all, owner_id rank) {
  tensors made;
  for (const auto& [key, whole] : all.whole) made.emplace(key, local_of(all.where.at(key), rank, whole));
  return made;
}

std::vector<named_source> sources_of(const placed_tensors& all, tensors& local) {
  std::vector<named_source> made;
  for (auto& [key, one] : local)
    made.push_back({key, {all.where.at(key), dtype::float32, {{small_tensors::view_of(one)}}}});
  return made;
}

std::vector<named_target> targets_of(const placed_tensors& all, tensors& local) {
  std::vector<named_target> made;
  for (auto& [key, one] : local)
    made.push_back({key, {all.where.at(key), dtype::float32, {{small_tensors::view_of(one)}}}});
  return made;
}

// The bytes of the elements that a rank's targets need and its sources lack. Every element has its own number; filler
// is 0, and memory outside the parts is -1.
std::int64_t lacked_bytes(const tensors& sources, const tensors& targets) {
  std::set<float> held, needed;
  for (const auto& [key, one] : sources) held.insert(one.values.begin(), one.values.end());
  for (const auto& [key, one] : targets) needed.insert(one.values.begin(), one.values.end());
  std::int64_t made = 0;
  for (const float element : needed) made += element > 0 && !held.contains(element) ? 4 : 0;
  return made;
}

// Moves the tensors, and compares every element and the received bytes.
result<void> check_moved(const placed_tensors& from, const placed_tensors& to,
                         const std::vector<mapping_rules>& mappings, std::int32_t world, bool counts_bytes) {
  return run_ranks(world, [&](any_communicator& comm) -> result<void> {
    tensors held = locals_of(from, comm.rank());
    const tensors before = held, expected = locals_of(to, comm.rank());
    tensors made = expected;
    for (auto& [key, one] : made) std::fill(one.values.begin(), one.values.end(), -1.0F);
    const std::vector<named_source> sources = sources_of(from, held);
    const std::vector<named_target> targets = targets_of(to, made);
    const auto report = redistribute(sources, targets, mappings, {}, comm, {});
    if (!report) return report.error();
    if (made != expected) return wrong("the targets have other elements");
    if (held != before) return wrong("the sources have changed");
    if (!counts_bytes) return {};
    if (const std::int64_t lacked = lacked_bytes(held, made); report->received_bytes != lacked)
      return wrong(fmt::format("received {} bytes and lacked {}", report->received_bytes, lacked));
    const auto planned = plan(sources, targets, mappings, {});
    if (!planned) return planned.error();
    if (planned->bytes_moved() != planned->lower_bound()) return wrong("the plan exceeds its lower bound");
    return {};
  });
}

}  // namespace

TEST_CASE("random mappings between random layouts fill every target, and move each lacked element once") {
  dice roll(random_seed::seed());
  for (std::uint64_t i = 0; i < random_seed::rounds(150); ++i) {
    const auto mapping = random_mappings::draw(roll);
    const mapping_rules rules = random_mappings::rules_of(mapping);
    INFO("SHARDMESH_SEED=" << random_seed::seed() << " round " << i << ": " << to_string(rules.rules[0].index));
    tensors left, right;
    random_mappings::fill(mapping, left, right);
    const bool has_state = roll.one_in(3);
    if (has_state) left = random_mappings::with_state(left), right = random_mappings::with_state(right);
    const auto world = static_cast<std::int32_t>(1 + roll.below(5));
    const placed_tensors of_left = placed(roll, left, world), of_right = placed(roll, right, world);
    const auto there = check_moved(of_left, of_right, {rules}, world, !has_state);
    INFO((there ? "" : to_string(there.error())));
    CHECK(there);
    const auto back = check_moved(of_right, of_left, {rules.inverse()}, world, !has_state);
    INFO((back ? "" : to_string(back.error())));
    CHECK(back);
  }
}

TEST_CASE("two mappings in a chain move each element once, without the tensors between them") {
  dice roll(random_seed::seed());
  for (std::uint64_t i = 0; i < random_seed::rounds(150); ++i) {
    const auto first = random_mappings::draw(roll);
    const auto second = random_mappings::rearranged(roll, first);
    const mapping_rules to_first = random_mappings::rules_of(first), to_second = random_mappings::rules_of(second);
    INFO("SHARDMESH_SEED=" << random_seed::seed() << " round " << i << ": " << to_string(to_first.rules[0].index)
                           << " and " << to_string(to_second.rules[0].index));
    tensors left, of_first, of_second, again;
    random_mappings::fill(first, left, of_first);
    random_mappings::fill(second, again, of_second);
    const auto world = static_cast<std::int32_t>(1 + roll.below(5));
    const placed_tensors start = placed(roll, of_first, world), end = placed(roll, of_second, world);
    const auto moved = check_moved(start, end, {to_first.inverse(), to_second}, world, true);
    INFO((moved ? "" : to_string(moved.error())));
    CHECK(moved);
    const placed_tensors parts = placed(roll, left, world), same = placed(roll, left, world);
    const auto returned = check_moved(parts, same, {to_first, to_first.inverse()}, world, true);
    INFO((returned ? "" : to_string(returned.error())));
    CHECK(returned);
  }
}

TEST_CASE("elements that a target repeats arrive once, also if ranks cut between and inside the repetitions") {
  dice roll(random_seed::seed());
  const auto rules = rules_of(
      "[sizes]\ng = 2\nn = 3\nd = 4\nh = 2\n[[rule]]\nleft = 'k'\nright = 'r'\n"
      "index = 'k: (g d) h -> r: (g n* d) h'\n");
  const tensors k{{"k", counted({8, 2}, 1)}};
  tensors r{{"r", {{24, 2}, {}}}};
  for (int group = 0; group < 2; ++group)
    for (int copy = 0; copy < 3; ++copy)
      for (int i = 0; i < 8; ++i) r.at("r").values.push_back(static_cast<float>(1 + group * 8 + i));
  for (int i = 0; i < 30; ++i) {
    const auto world = static_cast<std::int32_t>(1 + roll.below(6));
    INFO("SHARDMESH_SEED=" << random_seed::seed() << " round " << i);
    const placed_tensors of_k = placed(roll, k, world), of_r = placed(roll, r, world);
    const auto there = check_moved(of_k, of_r, rules, world, true);
    INFO((there ? "" : to_string(there.error())));
    CHECK(there);
    const auto back = check_moved(of_r, of_k, {rules[0].inverse()}, world, false);
    INFO((back ? "" : to_string(back.error())));
    CHECK(back);
  }
}

TEST_CASE("repetitions of a source that differ are an error on every rank, which names the target and its element") {
  const auto rules =
      rules_of("[sizes]\nn = 2\nd = 3\n[[rule]]\nleft = 'r'\nright = 'k'\nindex = 'r: (n* d) -> k: d'\n");
  const std::string found = error_of_all(2, [&](any_communicator& comm) {
    tensor r{{3}, comm.rank() == 0 ? std::vector<float>{1, 2, 3} : std::vector<float>{1, 2, 4}};
    tensor k = counted({3});
    const std::vector<named_source> from{{"r", {rows({6}, 2), dtype::float32, {{small_tensors::view_of(r)}}}}};
    const std::vector<named_target> to{
        {"k", {on_every_rank({3}, 2).value(), dtype::float32, {{small_tensors::view_of(k)}}}}};
    return redistribute(from, to, rules, {}, comm);
  });
  CHECK(contains(found, "k: the repetitions of an element differ"));
  CHECK(contains(found, "[2:3)"));
}

TEST_CASE("operations on values are computed before a cast, and an infinite result names the element on every rank") {
  const auto rules = rules_of("[[rule]]\nleft = 'w'\nright = 'v'\nvalues = ['log(x)', 'x * 2']\n");
  const auto moved = [&](any_communicator& comm, float last, bool allows) {
    tensor w{{2}, comm.rank() == 0 ? std::vector<float>{1, 2} : std::vector<float>{3, last}};
    std::vector<double> made(4, -1);
    const tensor_view view{reinterpret_cast<std::byte*>(made.data()), dtype::float64, {}, {4}, {1}};
    const std::vector<named_source> from{{"w", {rows({4}, 2), dtype::float32, {{small_tensors::view_of(w)}}}}};
    const std::vector<named_target> to{{"v", {on_every_rank({4}, 2).value(), dtype::float64, {{view}}}}};
    auto done = redistribute(from, to, rules, {}, comm, {.allow_narrowing = allows});
    const std::vector<float> values{1, 2, 3, last};
    for (std::size_t i = 0; done && i < 4; ++i)
      if (made[i] != static_cast<double>(static_cast<float>(2 * std::log(static_cast<double>(values[i])))))
        return result<redistribute_report>(wrong(fmt::format("element {} is {}", i, made[i])));
    return done;
  };
  CHECK(error_of_all(2, [&](any_communicator& comm) { return moved(comm, 4, false); }) == "no error");
  const std::string found = error_of_all(2, [&](any_communicator& comm) { return moved(comm, 0, false); });
  CHECK(contains(found, "v: the operations on values turn a finite value into NaN or infinity"));
  CHECK(contains(found, "[3:4)"));
}

TEST_CASE("targets and tensors that do not match are all reported before anything moves") {
  const auto rules = rules_of("[rename]\n'a' = 'x'\n'b' = 'y'\n'c' = 'z'\n");
  const std::string found = error_of_all(2, [&](any_communicator& comm) {
    tensor a = counted({2}), b = counted({2}), c = counted({2});
    std::vector<named_source> from;
    for (auto& [key, one] : std::vector<std::pair<std::string, tensor*>>{{"a", &a}, {"b", &b}, {"c", &c}})
      from.push_back({key, {rows({4}, 2), dtype::float32, {{small_tensors::view_of(*one)}}}});
    tensor x = counted({2}), y = counted({3}), w = counted({2});
    const std::vector<named_target> to{{"x", {rows({4}, 2), dtype::float32, {{small_tensors::view_of(x)}}}},
                                       {"y", {rows({6}, 2), dtype::float32, {{small_tensors::view_of(y)}}}},
                                       {"w", {rows({4}, 2), dtype::float32, {{small_tensors::view_of(w)}}}}};
    auto done = redistribute(from, to, rules, {}, comm);
    if (!done && done.error().problem_count() == 3 && x == counted({2})) return done;
    return result<redistribute_report>(wrong("three problems were expected, and an unchanged target"));
  });
  CHECK(contains(found, "w: the mapping does not make this target from the sources"));
  CHECK(contains(found, "2 other problems"));
}

TEST_CASE("a source that ranks do not hold whole is an error with its key and box, whatever the targets need") {
  const auto rules = rules_of("[rename]\n'w' = 'v'\n");
  const std::vector<fragment> part{{{{0, 0}, {1, 2}}, 0, 0, {0, 0}, 0}, {{{2, 0}, {2, 2}}, 1, 0, {0, 0}, 0}};
  const distribution where = distribution::from_fragments({4, 2}, part, owner_space::ranks).value();
  const std::string found = error_of_all(2, [&](any_communicator& comm) {
    tensor w = local_of(where, comm.rank(), counted({4, 2})), v = counted({2, 2});
    const std::vector<named_source> from{{"w", {where, dtype::float32, {{small_tensors::view_of(w)}}}}};
    const std::vector<named_target> to{{"v", {rows({4, 2}, 2), dtype::float32, {{small_tensors::view_of(v)}}}}};
    return redistribute(from, to, rules, {}, comm);
  });
  CHECK(contains(found, "w: [1:2, 0:2) is held by no rank"));
}

TEST_CASE("one rank's other mapping, missing tensor, or wrong memory is the same error on every rank") {
  const std::string expression = "[sizes]\nn = 4\n[[rule]]\nleft = 'w'\nright = 'v'\nindex = 'w: n -> v: n'\n";
  const auto call = [&](any_communicator& comm, const std::string& rules, std::int64_t length) {
    tensor w = counted({2}), v = counted({length});
    const std::vector<named_source> from{{"w", {rows({4}, 2), dtype::float32, {{small_tensors::view_of(w)}}}}};
    const std::vector<named_target> to{{"v", {rows({4}, 2), dtype::float32, {{small_tensors::view_of(v)}}}}};
    return redistribute(from, to, rules_of(rules), {}, comm, {.check = check_policy::every_run});
  };
  const std::string disagreement = error_of_all(2, [&](any_communicator& comm) {
    return call(comm, comm.rank() == 0 ? expression : expression + "values = ['x + 1']\n", 2);
  });
  CHECK(contains(disagreement, "disagree"));
  CHECK(contains(disagreement, "w -> v by x + 1"));
  const std::string missing = error_of_all(3, [&](any_communicator& comm) {
    return call(comm, comm.rank() == 2 ? "[rename]\n'x' = 'v'\n" : expression, comm.rank() == 2 ? 0 : 2);
  });
  CHECK(contains(missing, "the checkpoint lacks it"));
  const std::string larger =
      error_of_all(2, [&](any_communicator& comm) { return call(comm, expression, comm.rank() == 1 ? 4 : 2); });
  INFO(larger);
  CHECK(contains(larger, "w -> v"));
  CHECK(contains(larger, "is larger than this rank's part of the tensor"));
}

TEST_CASE("a Partial source is reduced on its way into a fused target, and a computed Partial target is refused") {
  const auto rules = rules_of(
      "[sizes]\nn = 2\nm = 1\nh = 2\n[[rule]]\nleft.q = 'q'\nleft.k = 'k'\nright = 'qk'\n"
      "index = 'q: n h, k: m h -> qk: h [q:n | k:m]'\n");
  const auto partial = [](const extents& shape) {
    return distribute(layout::make(device_mesh::make({3}).value(), {placement::partial(reduce_op::sum)}, shape).value())
        .value();
  };
  const auto moved = [&](any_communicator& comm, const distribution& where, std::vector<float> expected) {
    tensor q = counted({2, 2}, 1), k = counted({1, 2}, 5);
    tensor fused{local_sizes(where, comm.rank()), {}};
    fused.values.assign(static_cast<std::size_t>(small_tensors::volume(fused.shape)), 0);
    const std::vector<named_source> from{{"q", {partial({2, 2}), dtype::float32, {{small_tensors::view_of(q)}}}},
                                         {"k", {partial({1, 2}), dtype::float32, {{small_tensors::view_of(k)}}}}};
    const std::vector<named_target> to{{"qk", {where, dtype::float32, {{small_tensors::view_of(fused)}}}}};
    auto done = redistribute(from, to, rules, {}, comm);
    if (done && fused.values != expected) return result<redistribute_report>(wrong("the sums are wrong"));
    return done;
  };
  CHECK(error_of_all(3, [&](any_communicator& comm) {
          return moved(comm, on_every_rank({2, 3}, 3).value(), {3, 9, 15, 6, 12, 18});
        }) == "no error");
  const std::string refused = error_of_all(3, [&](any_communicator& comm) { return moved(comm, partial({2, 3}), {}); });
  CHECK(contains(refused, "qk: a tensor that a mapping computes cannot be a Partial"));
}

TEST_CASE("a trainer's shards move into a server's layout through the convention between the two") {
  // Megatron's qkv by query groups, over tp = 2, becomes vLLM's q, k, and v one after another, over tp = 3.
  const std::string sizes = "[sizes]\ng = 2\nr = 2\nd = 2\nh = 3\n";
  const std::vector<mapping_rules> there{
      rules_of(sizes + "[[rule]]\nleft.q = 'q'\nleft.k = 'k'\nleft.v = 'v'\nright = 'grouped'\n"
                       "index = 'q: (g r d) h, k: (g d) h, v: (g d) h -> grouped: (g [q:r | k | v] d) h'\n")[0]
          .inverse(),
      rules_of(sizes +
               "[[rule]]\nleft.q = 'q'\nleft.k = 'k'\nleft.v = 'v'\nright = 'fused'\n"
               "index = 'q: (g r d) h, k: (g d) h, v: (g d) h -> fused: [q:(g r d) | k:(g d) | v:(g d)] h'\n")[0]};
  const placed_tensors grouped{{{"grouped", counted({16, 3}, 1)}}, {{"grouped", rows({16, 3}, 2)}}};
  // Rows of groups: q q q q k k v v, twice.
  tensor whole{{16, 3}, {}};
  for (const int row : {0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15})
    for (int column = 0; column < 3; ++column) whole.values.push_back(static_cast<float>(1 + row * 3 + column));
  const auto segments =
      layout::make(device_mesh::make({3}).value(), {placement::shard_segments(0, {8, 4, 4})}, {16, 3});
  const placed_tensors fused{{{"fused", whole}}, {{"fused", distribute(segments.value()).value()}}};
  const auto moved = check_moved(grouped, fused, there, 3, true);
  INFO((moved ? "" : to_string(moved.error())));
  CHECK(moved);
}
