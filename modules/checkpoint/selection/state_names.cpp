// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;
import :state_names;

namespace shardmesh {
namespace {

constexpr std::size_t most_components = 256;
constexpr std::size_t most_meanings = 32;  // a name that ends more keys than this says nothing about the prefix

// Where each component begins; empty for keys with too many components.
std::vector<std::size_t> components_of(std::string_view key) {
  std::vector<std::size_t> begins{0};
  for (std::size_t dot = key.find('.'); dot != std::string_view::npos; dot = key.find('.', dot + 1)) {
    if (begins.size() == most_components) return {};
    begins.push_back(dot + 1);
  }
  return begins;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// A place in a key where an optimizer's entries begin.
struct marker {
  std::string_view optimizer;  // with its trailing dot
  std::size_t component = 0;   // the component after the marker
  bool is_state = false;       // else param_groups
};

std::vector<marker> markers_of(std::string_view key, const std::vector<std::size_t>& begins) {
  std::vector<marker> found;
  for (std::size_t i = 0; i + 2 < begins.size(); ++i) {
    const std::string_view part = key.substr(begins[i], begins[i + 1] - 1 - begins[i]);
    if (part == "state" || part == "param_groups") found.push_back({key.substr(0, begins[i]), i + 1, part == "state"});
  }
  return found;
}

struct meant_name {
  std::size_t begin = 0;
  std::string_view name;
  bool is_last = false;
  bool is_number = false;  // only digits: a position, or a name
};

// Every parameter name that an entry may contain. Among names of one form, longer ones come first.
std::vector<meant_name> names_in(std::string_view key, const std::vector<std::size_t>& begins, const marker& at) {
  std::vector<meant_name> names;
  const auto add = [&](std::size_t begin, std::size_t end, bool is_last) {
    const std::string_view name = begin < end ? key.substr(begin, end - begin) : std::string_view{};
    if (!name.empty()) names.push_back({begin, name, is_last, is_number(name)});
  };
  for (std::size_t next = begins.size() - 1; next > at.component; --next)
    add(begins[at.component], begins[next] - 1, false);
  if (at.is_state) add(begins[at.component + 1], key.size(), true);
  return names;
}

std::size_t common_components(std::string_view a, std::string_view b) {
  std::size_t common = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()) && a[i] == b[i]; ++i) common += a[i] == '.' ? 1 : 0;
  return common;
}

bool is_of_a_model(std::string_view prefix) {
  constexpr auto known =
      std::to_array<std::string_view>({"model", "module", "state_dict", "model_state", "model_state_dict"});
  if (prefix.empty()) return false;
  prefix.remove_suffix(1);
  return std::find(known.begin(), known.end(), prefix.substr(prefix.rfind('.') + 1)) != known.end();
}

// For each name, the prefixes of the keys that end with it.
using prefixes_of_names = std::unordered_map<std::string_view, std::vector<std::string_view>>;

void add_prefixes(std::string_view key, prefixes_of_names& names) {
  for (const std::size_t begin : components_of(key))
    if (const auto found = names.find(key.substr(begin)); found != names.end() && found->second.size() <= most_meanings)
      found->second.push_back(key.substr(0, begin));
}

}  // namespace

state_names::state_names(std::span<const std::string_view> keys) : keys_(keys.begin(), keys.end()) {
  key_roles roles;
  for (const std::string_view key : keys_) roles.add(key);
  prefixes_of_names names;
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    is_state_.push_back(roles.role_of(keys_[i]) == key_role::optimizer);
    if (!is_state_[i]) {
      others_.emplace(keys_[i], i);
      continue;
    }
    const auto begins = components_of(keys_[i]);
    for (const marker& at : markers_of(keys_[i], begins))
      for (const meant_name& meant : names_in(keys_[i], begins, at))
        if (!meant.is_number) names.try_emplace(meant.name);
  }
  for (std::size_t i = 0; i < keys_.size(); ++i)
    if (!is_state_[i]) add_prefixes(keys_[i], names);
  std::unordered_map<std::string_view, std::map<std::pair<bool, std::string_view>, std::size_t>> fitting;
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    if (!is_state_[i]) continue;
    const auto begins = components_of(keys_[i]);
    for (const marker& at : markers_of(keys_[i], begins)) {
      std::vector<std::pair<bool, std::string_view>> seen;
      for (const meant_name& meant : names_in(keys_[i], begins, at)) {
        if (meant.is_number) continue;
        const auto& prefixes = names.at(meant.name);
        if (prefixes.size() > most_meanings) continue;
        for (const std::string_view prefix : prefixes) seen.emplace_back(meant.is_last, prefix);
      }
      std::sort(seen.begin(), seen.end());
      seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
      for (const auto& one : seen) ++fitting[at.optimizer][one];
      if (!seen.empty())
        (at.is_state ? optimizers_[at.optimizer].state_has_names : optimizers_[at.optimizer].groups_have_names) = true;
    }
  }
  for (const auto& [optimizer, found] : fitting) choose(found, optimizer);
}

void state_names::choose(const std::map<std::pair<bool, std::string_view>, std::size_t>& fitting,
                         std::string_view optimizer) {
  const auto rank = [&](const auto& one) {
    const auto& [is_last, prefix] = one.first;
    return std::tuple(one.second, !is_last, common_components(optimizer, prefix), prefix.empty(),
                      is_of_a_model(prefix));
  };
  const auto best =
      std::max_element(fitting.begin(), fitting.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  spelling& chosen = optimizers_[optimizer];
  chosen.is_name_last = best->first.first;
  for (const auto& one : fitting)
    if (rank(one) == rank(*best)) chosen.prefixes.push_back(one.first.second);
}

std::vector<state_name> state_names::of(std::size_t key) const {
  std::vector<state_name> found;
  if (!is_state_[key]) return found;
  const auto begins = components_of(keys_[key]);
  std::string wanted;
  for (const marker& at : markers_of(keys_[key], begins)) {
    const auto optimizer = optimizers_.find(at.optimizer);
    if (optimizer == optimizers_.end()) continue;
    const auto names = names_in(keys_[key], begins, at);
    const bool has_names = at.is_state ? optimizer->second.state_has_names : optimizer->second.groups_have_names;
    for (const std::string_view prefix : optimizer->second.prefixes)
      for (const meant_name& meant : names) {
        if (meant.is_last != (at.is_state && optimizer->second.is_name_last) || (meant.is_number && !has_names))
          continue;
        const auto parameter = others_.find(wanted.assign(prefix).append(meant.name));
        if (parameter == others_.end()) continue;
        found.push_back({parameter->second, prefix.size(), meant.begin});
        break;
      }
    if (!found.empty()) return found;  // the leftmost marker decides: a module may also be called "state"
  }
  return found;
}

std::vector<std::string> state_names::prefixes_of(std::string_view key) const {
  for (const marker& at : markers_of(key, components_of(key)))
    if (const auto found = optimizers_.find(at.optimizer); found != optimizers_.end())
      return {found->second.prefixes.begin(), found->second.prefixes.end()};
  return {};
}

}  // namespace shardmesh
