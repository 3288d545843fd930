// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import :optimizer_state_renames;

namespace shardmesh {
namespace {

std::vector<std::string_view> names_of(std::span<const selectable> keys) {
  std::vector<std::string_view> names;
  for (const selectable& one : keys) names.push_back(one.key);
  return names;
}

bool is_parameter_list(const selectable& entry) {
  return !entry.is_tensor && entry.key.ends_with(".params") &&
         entry.key.find("param_groups.") != std::string_view::npos;
}

error cannot_follow(std::string_view key, std::string why) {
  return fail(errc::invalid_argument, std::move(why))
      .with_key(std::string(key))
      .with_hint("rename or skip it with a rule of its own");
}

}  // namespace

key_change change_of(std::string_view key, const selection_options& options) {
  key_change made;
  if (!options.strip_prefix.empty() && key.starts_with(options.strip_prefix)) {
    key.remove_prefix(options.strip_prefix.size());
    made.is_stripped = true;
  }
  made.key = key;
  for (std::size_t i = 0; i < options.rename.size(); ++i)
    if (auto rewritten = options.rename[i].apply(made.key)) {
      made.renames.push_back(i);
      made.key = *std::move(rewritten);
    }
  return made;
}

std::optional<std::string> new_parameter_name(std::string_view key, std::size_t prefix, std::string_view new_key,
                                              std::string_view strip_prefix) {
  const std::string_view before = key.substr(0, prefix), name = key.substr(prefix);
  const auto behind = [&](std::string_view kept) -> std::optional<std::string> {
    if (!new_key.starts_with(kept) || new_key.size() == kept.size()) return std::nullopt;
    return std::string(new_key.substr(kept.size()));
  };
  const bool is_stripped = !strip_prefix.empty() && key.starts_with(strip_prefix);
  if (!is_stripped)
    if (auto made = behind(before)) return made;
  if (is_stripped && before.starts_with(strip_prefix))
    if (auto made = behind(before.substr(strip_prefix.size()))) return made;
  if (is_stripped && strip_prefix.starts_with(before)) return behind({});
  if (new_key == name || (new_key.ends_with(name) && new_key[new_key.size() - name.size() - 1] == '.'))
    return std::string(name);  // only the text before the name has changed
  return std::nullopt;
}

std::optional<std::string> param_group_renames::renamed(std::size_t index, const std::string& name) const {
  const auto list = lists_.find(index);
  if (list == lists_.end()) return name;
  for (const std::string& prefix : list->second) {
    const auto change = changes_.find(prefix + name);
    if (change == changes_.end()) continue;
    if (!change->second) return std::nullopt;
    return new_parameter_name(change->first, prefix.size(), *change->second, strip_prefix_).value_or(name);
  }
  return name;
}

optimizer_state_renames::optimizer_state_renames(std::span<const selectable> keys, const selection_options& options)
    : keys_(keys), options_(options), names_(names_of(keys)) {}

const key_change& optimizer_state_renames::change(std::size_t parameter) {
  const auto found = changes_.find(parameter);
  if (found != changes_.end()) return found->second;
  const std::string_view key = keys_[parameter].key;
  key_change made = change_of(key, options_);
  made.is_skipped = std::any_of(options_.skip.begin(), options_.skip.end(),
                                [&](const key_pattern& pattern) { return pattern.matches(key); });
  return changes_.emplace(parameter, std::move(made)).first->second;
}

result<std::optional<key_change>> optimizer_state_renames::follow(std::size_t index, const state_name& name,
                                                                  const key_change& own) {
  const std::string_view key = keys_[index].key, parameter = keys_[name.parameter].key;
  const key_change& by = change(name.parameter);
  if (by.is_skipped) return std::optional(key_change{.is_skipped = true});
  if (by.key == parameter) return std::optional<key_change>();
  const std::size_t stripped = own.is_stripped ? options_.strip_prefix.size() : 0;
  if (!own.renames.empty() || stripped > name.begin) return std::optional<key_change>();
  const auto renamed = new_parameter_name(parameter, name.prefix, by.key, options_.strip_prefix);
  if (!renamed)
    return cannot_follow(key, fmt::format("its parameter {} becomes {}, in which the parameter's name cannot be found",
                                          escaped(parameter), escaped(by.key)));
  const std::string_view old = parameter.substr(name.prefix);
  if (*renamed == old) return std::optional<key_change>();
  key_change made = by;
  made.is_stripped |= own.is_stripped;
  made.key =
      fmt::format("{}{}{}", key.substr(stripped, name.begin - stripped), *renamed, key.substr(name.begin + old.size()));
  return std::optional(std::move(made));
}

result<std::optional<key_change>> optimizer_state_renames::change_by_parameter(std::size_t index,
                                                                               const key_change& own) {
  const auto meant = names_.of(index);
  if (meant.empty()) return std::optional<key_change>();
  SHARDMESH_TRY(std::optional<key_change> made, follow(index, meant.front(), own));
  for (const state_name& other : std::span(meant).subspan(1)) {
    SHARDMESH_TRY(const std::optional<key_change> also, follow(index, other, own));
    if (made.has_value() == also.has_value() &&
        (!made || (made->is_skipped == also->is_skipped && made->key == also->key)))
      continue;
    return cannot_follow(keys_[index].key,
                         fmt::format("{} and {} could be its parameter", escaped(keys_[meant.front().parameter].key),
                                     escaped(keys_[other.parameter].key)));
  }
  return made;
}

std::optional<std::size_t> optimizer_state_renames::left_behind() {
  std::optional<std::size_t> nameless;
  bool is_changed = false;
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    if (!keys_[i].is_tensor) continue;
    if (!names_.is_state(i)) {
      is_changed = is_changed || change(i).is_skipped || change(i).key != keys_[i].key;
    } else if (!names_.of(i).empty()) {
      return std::nullopt;
    } else if (!nameless) {
      nameless = i;
    }
  }
  return is_changed ? nameless : std::nullopt;
}

param_group_renames optimizer_state_renames::lists() {
  param_group_renames made;
  made.set_strip_prefix(options_.strip_prefix);
  bool has_lists = false;
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    if (!is_parameter_list(keys_[i])) continue;
    auto prefixes = names_.prefixes_of(keys_[i].key);
    if (prefixes.empty()) continue;
    made.add_list(i, std::move(prefixes));
    has_lists = true;
  }
  if (!has_lists) return made;
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    if (names_.is_state(i)) continue;
    const key_change& by = change(i);
    if (by.is_skipped)
      made.add_change(std::string(keys_[i].key), std::nullopt);
    else if (by.key != keys_[i].key)
      made.add_change(std::string(keys_[i].key), by.key);
  }
  return made;
}

}  // namespace shardmesh
