// SPDX-License-Identifier: Apache-2.0
// Tests which parameter an entry of optimizer state belongs to: random keys against a model that compares every pair.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <random_seed.hpp>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

import shardmesh.checkpoint_core;
import shardmesh.checkpoint;

using namespace shardmesh;

namespace {

std::vector<std::size_t> beginnings(const std::string& text) {
  std::vector<std::size_t> found{0};
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] == '.') found.push_back(i + 1);
  return found;
}

std::size_t count_dots(std::string_view text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '.'));
}

// One way in which `entry` could be state of the parameter `key`.
struct reading {
  std::string optimizer, prefix, name;
  bool is_last = false, is_group = false;
  std::size_t begin = 0;

  bool is_number() const { return name.find_first_not_of("0123456789") == std::string::npos; }
};

std::vector<reading> readings(const std::string& entry, const std::string& key) {
  std::vector<reading> found;
  for (const std::size_t optimizer : beginnings(entry))
    for (const std::string marker : {"state.", "param_groups."}) {
      if (entry.substr(optimizer, marker.size()) != marker) continue;
      const std::size_t begin = optimizer + marker.size();
      const std::string rest = entry.substr(begin);
      for (const std::size_t prefix : beginnings(key)) {
        const std::string name = key.substr(prefix);
        if (name.empty()) continue;
        const reading made{entry.substr(0, optimizer), key.substr(0, prefix), name, false, marker[0] == 'p', begin};
        if (rest.starts_with(name + ".")) found.push_back(made);
        const std::size_t dot = rest.find('.');
        if (made.is_group || dot == std::string::npos || rest.substr(dot + 1) != name) continue;
        found.push_back(made);
        found.back().is_last = true;
        found.back().begin = begin + dot + 1;
      }
    }
  return found;
}

std::size_t common_components(const std::string& a, const std::string& b) {
  const auto [end, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return count_dots(std::string_view(a).substr(0, static_cast<std::size_t>(end - a.begin())));
}

bool is_of_a_model(const std::string& prefix) {
  const std::string last = "." + prefix;
  return last.ends_with(".model.") || last.ends_with(".module.");
}

std::vector<std::vector<state_name>> model_of(const std::vector<std::string>& keys) {
  key_roles roles;
  for (const std::string& key : keys) roles.add(key);
  const auto is_state = [&](const std::string& key) { return roles.role_of(key) == key_role::optimizer; };
  std::map<std::string, std::map<std::pair<bool, std::string>, std::set<std::string>>> fitting;
  std::set<std::pair<std::string, bool>> has_names;
  for (const std::string& entry : keys)
    for (const std::string& key : keys)
      if (is_state(entry) && !is_state(key))
        for (const reading& one : readings(entry, key)) {
          if (one.is_number()) continue;
          fitting[one.optimizer][{one.is_last, one.prefix}].insert(entry);
          has_names.emplace(one.optimizer, one.is_group);
        }
  const auto rank = [&](const std::string& optimizer, const std::pair<bool, std::string>& spelling) {
    return std::tuple(fitting[optimizer][spelling].size(), !spelling.first,
                      common_components(optimizer, spelling.second), spelling.second.empty(),
                      is_of_a_model(spelling.second));
  };
  std::vector<std::vector<state_name>> made;
  for (const std::string& entry : keys) {
    // By position, then by prefix.
    std::map<std::size_t, std::map<std::string, std::pair<std::size_t, state_name>>> found;
    for (std::size_t k = 0; k < keys.size() && is_state(entry); ++k) {
      if (is_state(keys[k])) continue;
      for (const reading& one : readings(entry, keys[k])) {
        if (one.is_number() && !has_names.contains({one.optimizer, one.is_group})) continue;
        // For param_groups, an optimizer determines only the prefix.
        const auto& spellings = fitting[one.optimizer];
        const bool is_chosen = std::any_of(spellings.begin(), spellings.end(), [&](const auto& mine) {
          return mine.first.second == one.prefix && (one.is_group || mine.first.first == one.is_last) &&
                 std::none_of(spellings.begin(), spellings.end(), [&](const auto& other) {
                   return rank(one.optimizer, mine.first) < rank(one.optimizer, other.first);
                 });
        });
        if (!is_chosen) continue;
        auto& [size, name] = found[one.optimizer.size()][one.prefix];
        if (one.name.size() <= size) continue;
        size = one.name.size();
        name = {k, one.prefix.size(), one.begin};
      }
    }
    made.emplace_back();
    if (!found.empty())
      for (const auto& [prefix, one] : found.begin()->second) made.back().push_back(one.second);
  }
  return made;
}

std::vector<std::vector<state_name>> found_in(const std::vector<std::string>& keys) {
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  const state_names names(views);
  std::vector<std::vector<state_name>> made;
  for (std::size_t i = 0; i < keys.size(); ++i) made.push_back(names.of(i));
  return made;
}

}  // namespace

TEST_CASE("every entry belongs to the parameter that comparing all keys with all finds") {
  constexpr std::array<std::string_view, 12> parts{"state", "optim", "model", "exp_avg", "w",   "a",
                                                   "0",     "",      "step",  "module",  "ema", "param_groups"};
  constexpr std::array<std::string_view, 8> begins{
      "optim.state.",  "optim.state.", "optimizer.state.", "optim.param_groups.", "model.", "ema.", "",
      "a.optim.state."};
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  const auto below = [&](std::size_t limit) {
    return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
  };
  std::size_t entries = 0, ambiguous = 0;
  for (int round = 0; round < 400; ++round) {
    std::set<std::string> made;
    const std::size_t wanted = 4 + below(24);
    while (made.size() < wanted) {
      std::string key(begins[below(begins.size())]);
      for (std::size_t part = 0, count = 1 + below(4); part < count; ++part)
        key.append(part == 0 ? "" : ".").append(parts[below(parts.size())]);
      made.insert(key);
    }
    std::vector<std::string> keys(made.begin(), made.end());
    std::shuffle(keys.begin(), keys.end(), random);
    const auto expected = model_of(keys), found = found_in(keys);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      entries += expected[i].empty() ? 0 : 1;
      ambiguous += expected[i].size() > 1 ? 1 : 0;
      INFO("round " << round << ": " << keys[i]);
      REQUIRE(found[i] == expected[i]);
    }
  }
  CHECK(entries > 100);
  CHECK(ambiguous > 0);
}

TEST_CASE("numbers are names beside names, and positions alone") {
  const std::vector<std::string> keys{"model.w",
                                      "model.0",
                                      "model.param_groups.w",
                                      "optim.state.w.exp_avg",
                                      "optim.state.0.exp_avg",
                                      "optim.state.param_groups.w.exp_avg",
                                      "optim.param_groups.0.lr",
                                      "flat.state.0.exp_avg",
                                      "flat.param_groups.0.lr",
                                      "flat.param_groups.w.lr",
                                      "flat.param_groups.param_groups.w.lr"};
  const std::vector<std::vector<state_name>> expected{{}, {}, {},           {{0, 6, 12}}, {{1, 6, 12}}, {{2, 6, 12}},
                                                      {}, {}, {{1, 6, 18}}, {{0, 6, 18}}, {{2, 6, 18}}};
  CHECK(found_in(keys) == expected);
  CHECK(model_of(keys) == expected);
}

TEST_CASE("many parameters, one name at the end of all and keys of many components take a moment") {
  std::vector<std::string> keys;
  for (int i = 0; i < 20'000; ++i) {
    const std::string name = "layers." + std::to_string(i) + ".weight";
    keys.push_back("model." + name);
    for (const std::string state : {"step", "exp_avg", "exp_avg_sq"})
      keys.push_back("optim.state." + name + "." + state);
  }
  keys.push_back("model.weight");
  keys.push_back("optim.state.weight.exp_avg");
  std::string deep = "optim.state";
  for (int i = 0; i < 100'000; ++i) deep += ".a";
  keys.push_back(deep);
  const auto begin = std::chrono::steady_clock::now();
  const auto found = found_in(keys);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));  // comparing every pair takes an hour
  for (std::size_t i = 0; i < 80'000; ++i) {
    const std::size_t parameter = i / 4 * 4;
    REQUIRE(found[i] == (i == parameter ? std::vector<state_name>{} : std::vector<state_name>{{parameter, 6, 12}}));
  }
  CHECK(found[80'001] == std::vector<state_name>{{80'000, 6, 12}});
  CHECK(found[80'002].empty());
}
