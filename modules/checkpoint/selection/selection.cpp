// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;
import :cast_choice;
import :optimizer_state_renames;

namespace shardmesh {
namespace {

// The text before the last '=' and the text after it; nothing if there is no '='.
std::optional<std::pair<std::string_view, std::string_view>> split(std::string_view text) {
  const std::size_t at = text.rfind('=');
  if (at == std::string_view::npos) return std::nullopt;
  return std::pair(text.substr(0, at), text.substr(at + 1));
}

}  // namespace

result<rename_rule> rename_rule::make(key_pattern what, std::string replacement) {
  SHARDMESH_TRY(what.check_replacement(replacement));
  rename_rule rule;
  rule.what_ = std::move(what);
  rule.replacement_ = std::move(replacement);
  return rule;
}

result<rename_rule> parse_rename_rule(std::string_view text) {
  const auto parts = split(text);
  if (!parts) return fail(errc::invalid_argument, fmt::format("'{}' is not RE=REPLACEMENT", text));
  SHARDMESH_TRY(key_pattern what, key_pattern::compile(parts->first));
  return rename_rule::make(std::move(what), std::string(parts->second));
}

namespace {

// The rules that have matched a key, by position.
class usage {
 public:
  explicit usage(std::size_t rules) : used_(rules) {}
  // True when any pattern matches. Also tries every pattern that has not matched yet, because each must match some key.
  bool any_matches(const std::vector<key_pattern>& patterns, std::string_view key) {
    bool any = false;
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      if (any && used_[i]) continue;
      if (!patterns[i].matches(key)) continue;
      used_[i] = any = true;
    }
    return any;
  }
  void mark(std::size_t rule) { used_[rule] = true; }
  bool is_used(std::size_t rule) const { return used_[rule]; }

 private:
  std::vector<bool> used_;
};

}  // namespace

selection_result select_keys(std::span<const selectable> keys, const selection_options& r) {
  selection_result found;
  usage only(r.only.size()), skip(r.skip.size()), rename(r.rename.size());
  cast_choice casts(r);
  bool prefix_used = r.strip_prefix.empty();
  std::optional<optimizer_state_renames> follow;
  if (r.optimizer_follows) follow.emplace(keys, r);
  std::int64_t followed = 0, left_out = 0;
  key_roles roles;
  if (r.no_optimizer)
    for (const selectable& s : keys) roles.add(s.key);
  std::unordered_map<std::string, std::size_t> taken;  // new name -> position in `kept`
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const selectable& s = keys[i];
    const bool wanted = only.any_matches(r.only, s.key) || r.only.empty();
    const bool skipped = skip.any_matches(r.skip, s.key);
    if (!wanted || skipped || (r.no_optimizer && roles.role_of(s.key) == key_role::optimizer)) {
      ++found.excluded;
      continue;
    }
    key_change change = change_of(s.key, r);
    if (follow) {
      auto by_parameter = follow->change_by_parameter(i, change);
      if (!by_parameter) {
        found.errors.push_back(std::move(by_parameter).error());
      } else if (*by_parameter) {
        change = **std::move(by_parameter);
        ++(change.is_skipped ? left_out : followed);
      }
    }
    if (change.is_skipped) {
      ++found.excluded;
      continue;
    }
    prefix_used |= change.is_stripped;
    for (const std::size_t rule : change.renames) rename.mark(rule);
    selected kept{i, std::move(change.key), s.type};
    if (s.is_tensor) kept.type = casts.type_of(s);
    const auto [other, is_new] = taken.emplace(kept.key, found.kept.size());
    if (!is_new)
      found.errors.push_back(
          fail(errc::invalid_argument, fmt::format("{} and {} would both be called {}",
                                                   keys[found.kept[other->second].index].key, s.key, kept.key))
              .with_key(kept.key));
    found.kept.push_back(std::move(kept));
  }
  if (follow) found.lists = follow->lists();
  if (followed + left_out > 0)
    found.notes.push_back(fmt::format("{} entr{} of optimizer state follow{} the parameters: {} renamed, {} left out",
                                      followed + left_out, followed + left_out == 1 ? "y" : "ies",
                                      followed + left_out == 1 ? "s" : "", followed, left_out));
  else if (const auto state = follow ? follow->left_behind() : std::nullopt)
    found.notes.push_back(fmt::format("no optimizer state follows the parameters: {} does not say which one it is of",
                                      escaped(keys[*state].key)));
  casts.report(found);
  if (r.allow_unused) return found;
  std::vector<std::string_view> names;
  const auto unused = [&](std::string_view option, std::string_view text, const key_pattern* pattern) {
    if (names.empty())
      for (const selectable& s : keys) names.push_back(s.key);
    const auto matches = [&](const selectable& s) {
      return pattern ? pattern->matches(s.key) : option == "strip_prefix" && std::string_view(s.key).starts_with(text);
    };
    // An unused rule may match keys that another rule leaves out, or, for a cast, objects.
    const auto matched = std::find_if(keys.begin(), keys.end(), matches);
    const bool has_tensor =
        std::any_of(matched, keys.end(), [&](const selectable& s) { return s.is_tensor && matches(s); });
    const std::string_view why = matched == keys.end()             ? "matches no key"
                                 : has_tensor || option != "casts" ? "matches only keys that the selection leaves out"
                                                                   : "matches only objects, which are not cast";
    const std::string near = pattern && matched == keys.end() ? suggestion(*pattern, names) : std::string();
    found.errors.push_back(fail(errc::invalid_argument, fmt::format("{} '{}' {}", option, text, why))
                               .with_hint(near + "allow_unused lets it pass"));
  };
  for (std::size_t i = 0; i < r.only.size(); ++i)
    if (!only.is_used(i)) unused("only", r.only[i].text(), &r.only[i]);
  for (std::size_t i = 0; i < r.skip.size(); ++i)
    if (!skip.is_used(i)) unused("skip", r.skip[i].text(), &r.skip[i]);
  if (!prefix_used) unused("strip_prefix", r.strip_prefix, nullptr);
  for (std::size_t i = 0; i < r.rename.size(); ++i)
    if (!rename.is_used(i)) unused("rename", r.rename[i].text(), &r.rename[i].what());
  for (std::size_t i = 0; i < r.casts.size(); ++i)
    if (!casts.matches_any(i)) unused("casts", to_string(r.casts[i]), r.casts[i].what ? &*r.casts[i].what : nullptr);
  return found;
}

}  // namespace shardmesh
