// SPDX-License-Identifier: Apache-2.0
// Tests the keep rules against a model that decides about each step alone.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdint>
#include <dice.hpp>
#include <optional>
#include <random_seed.hpp>
#include <string>
#include <utility>
#include <vector>

import shardmesh.run;

using namespace shardmesh;

namespace {

using time_point = std::chrono::system_clock::time_point;
using reasons = std::vector<std::string>;

time_point at_second(std::int64_t second) {
  return time_point(std::chrono::seconds(second));
}

std::vector<run_step> random_steps(dice& random) {
  std::vector<run_step> steps;
  std::int64_t step = random.below(3);
  for (std::int64_t left = random.up_to(12); left > 0; --left) {
    run_step one;
    one.step = step;
    step += 1 + random.below(5);
    one.saved = at_second(random.below(20));  // clocks jump: times are in no order
    if (!random.one_in(3)) one.metric = static_cast<double>(random.below(6)) - 2;
    one.is_pinned = random.one_in(6);
    steps.push_back(std::move(one));
  }
  return steps;
}

keep_rules random_rules(dice& random) {
  keep_rules rules;
  if (random.one_in(2)) rules.last = random.up_to(14);
  if (random.one_in(3)) rules.every = random.up_to(6);
  if (random.one_in(2)) rules.best = random.up_to(14);
  rules.highest_is_best = random.one_in(2);
  if (random.one_in(4)) rules.since = at_second(random.below(25));
  return rules;
}

// Whether b is better than a.
bool beats(const run_step& a, const run_step& b, bool highest_is_best) {
  if (*a.metric == *b.metric) return b.step > a.step;
  return highest_is_best ? *b.metric > *a.metric : *b.metric < *a.metric;
}

// The reasons for one step, in any order.
reasons model(const std::vector<run_step>& steps, const run_step& one, const keep_rules& rules) {
  const auto newer = std::count_if(steps.begin(), steps.end(), [&](const run_step& s) { return s.step > one.step; });
  const auto better = std::count_if(steps.begin(), steps.end(), [&](const run_step& s) {
    return one.metric && s.metric && beats(one, s, rules.highest_is_best);
  });
  reasons made;
  if (rules.last == 0 && rules.every == 0 && rules.best == 0 && !rules.since) made.emplace_back("no rule");
  if (newer < rules.last) made.push_back("last " + std::to_string(rules.last));
  if (rules.every != 0 && one.step % rules.every == 0) made.push_back("every " + std::to_string(rules.every));
  if (one.metric && better < rules.best) made.push_back("best " + std::to_string(rules.best));
  if (rules.since && !(one.saved < *rules.since)) made.emplace_back("since");
  if (one.is_pinned) made.emplace_back("pinned");
  return made;
}

reasons sorted(reasons list) {
  std::sort(list.begin(), list.end());
  return list;
}

}  // namespace

TEST_CASE("each rule keeps the steps that a model keeps, which looks at one step at a time") {
  const std::uint64_t seed = random_seed::seed();
  for (std::uint64_t round = 0; round < random_seed::rounds(400); ++round) {
    INFO("SHARDMESH_SEED=" << seed << ", round " << round);
    dice random(seed + round);
    const std::vector<run_step> steps = random_steps(random);
    const keep_rules rules = random_rules(random);
    const std::vector<reasons> found = reasons_to_keep(steps, rules);
    REQUIRE(found.size() == steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      INFO("step " << steps[i].step);
      CHECK(sorted(found[i]) == sorted(model(steps, steps[i], rules)));
    }
  }
}

TEST_CASE("a negative rule is an error that names the rule") {
  const std::vector<std::pair<keep_rules, std::string>> wrong{
      {{.last = -1}, "'last'"}, {{.every = -2}, "'every'"}, {{.best = -3}, "'best'"}};
  for (const auto& [rules, name] : wrong) {
    const auto checked = check_rules(rules);
    REQUIRE_FALSE(checked);
    CHECK(checked.error().code == errc::invalid_argument);
    CHECK(to_string(checked.error()).find(name) != std::string::npos);
  }
  CHECK(check_rules({.last = 1, .every = 2, .best = 3}));
}
