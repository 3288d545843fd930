// SPDX-License-Identifier: Apache-2.0
// Applies the rules of a selection to keys, and finds the rules that match nothing.
module;
#include <fmt/core.h>
#include <plural.hpp>

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

class key_selection {
 public:
  key_selection(std::span<const selectable> keys, const selection_options& options)
      : keys_(keys),
        options_(options),
        only_(options.only.size()),
        skip_(options.skip.size()),
        rename_(options.rename.size()),
        casts_(options),
        is_prefix_used_(options.strip_prefix.empty()) {
    if (options.optimizer_follows) follow_.emplace(keys, options);
    if (options.no_optimizer)
      for (const selectable& s : keys) roles_.add(s.key);
  }

  selection_result run() {
    for (std::size_t i = 0; i < keys_.size(); ++i) consider(i);
    if (follow_) note_followed();
    casts_.report(made_);
    if (!options_.allow_unused) report_unused();
    return std::move(made_);
  }

 private:
  void consider(std::size_t index) {
    const selectable& key = keys_[index];
    std::optional<key_change> change;
    if (!is_left_out(key)) change = change_at(index);
    if (!change || change->is_skipped) {
      ++made_.excluded;
      return;
    }
    is_prefix_used_ |= change->is_stripped;
    for (const std::size_t rule : change->renames) rename_.mark(rule);
    selected kept{index, std::move(change->key), key.type};
    if (key.is_tensor) kept.type = casts_.type_of(key);
    const auto [other, is_new] = taken_.emplace(kept.key, made_.kept.size());
    if (!is_new)
      made_.errors.push_back(
          fail(errc::invalid_argument, fmt::format("{} and {} would both be called {}",
                                                   keys_[made_.kept[other->second].index].key, key.key, kept.key))
              .with_key(kept.key));
    made_.kept.push_back(std::move(kept));
  }

  bool is_left_out(const selectable& key) {
    const bool is_wanted = only_.any_matches(options_.only, key.key) || options_.only.empty();
    const bool is_skipped = skip_.any_matches(options_.skip, key.key);
    return !is_wanted || is_skipped || (options_.no_optimizer && roles_.role_of(key.key) == key_role::optimizer);
  }

  // The change of a key: that of its parameter if optimizer state follows the parameters, otherwise that of the rules.
  key_change change_at(std::size_t index) {
    key_change change = change_of(keys_[index].key, options_);
    if (!follow_) return change;
    auto by_parameter = follow_->change_by_parameter(index, change);
    if (!by_parameter) {
      made_.errors.push_back(std::move(by_parameter).error());
    } else if (*by_parameter) {
      change = **std::move(by_parameter);
      ++(change.is_skipped ? followed_out_ : followed_);
    }
    return change;
  }

  void note_followed() {
    made_.lists = follow_->lists();
    const std::int64_t all = followed_ + followed_out_;
    if (all > 0)
      made_.notes.push_back(fmt::format("{} of optimizer state follow{} the parameters: {} renamed, {} left out",
                                        detail::counted(all, "entry", "entries"), all == 1 ? "s" : "", followed_,
                                        followed_out_));
    else if (const auto state = follow_->left_behind())
      made_.notes.push_back(fmt::format("no optimizer state follows the parameters: {} does not name its parameter",
                                        escaped(keys_[*state].key)));
  }

  void report_unused() {
    for (std::size_t i = 0; i < options_.only.size(); ++i)
      if (!only_.is_used(i)) report_unused("only", options_.only[i].text(), &options_.only[i]);
    for (std::size_t i = 0; i < options_.skip.size(); ++i)
      if (!skip_.is_used(i)) report_unused("skip", options_.skip[i].text(), &options_.skip[i]);
    if (!is_prefix_used_) report_unused("strip_prefix", options_.strip_prefix, nullptr);
    for (std::size_t i = 0; i < options_.rename.size(); ++i)
      if (!rename_.is_used(i)) report_unused("rename", options_.rename[i].text(), &options_.rename[i].what());
    for (std::size_t i = 0; i < options_.cast.size(); ++i) {
      const cast_rule& rule = options_.cast[i];
      if (!casts_.matches_any(i)) report_unused("cast", to_string(rule), rule.what ? &*rule.what : nullptr);
    }
  }

  // `pattern`: the rule's; null for a rule that matches a prefix, or a dtype.
  void report_unused(std::string_view option, std::string_view text, const key_pattern* pattern) {
    const auto matches = [&](const selectable& s) {
      return pattern ? pattern->matches(s.key) : option == "strip_prefix" && std::string_view(s.key).starts_with(text);
    };
    // An unused rule may match keys that another rule leaves out, or, for a cast, objects.
    const auto matched = std::find_if(keys_.begin(), keys_.end(), matches);
    const bool has_tensor =
        std::any_of(matched, keys_.end(), [&](const selectable& s) { return s.is_tensor && matches(s); });
    const std::string_view why = matched == keys_.end()           ? "matches no key"
                                 : has_tensor || option != "cast" ? "matches only keys that the selection leaves out"
                                                                  : "matches only objects, which are not cast";
    const std::string near = pattern && matched == keys_.end() ? suggestion(*pattern, names()) : std::string();
    made_.errors.push_back(fail(errc::invalid_argument, fmt::format("{} '{}' {}", option, text, why))
                               .with_hint(near + "pass allow_unused to ignore this"));
  }

  // All keys, for suggestions.
  std::span<const std::string_view> names() {
    if (names_.empty())
      for (const selectable& s : keys_) names_.push_back(s.key);
    return names_;
  }

  std::span<const selectable> keys_;
  const selection_options& options_;
  selection_result made_;
  usage only_, skip_, rename_;
  cast_choice casts_;
  bool is_prefix_used_;
  std::optional<optimizer_state_renames> follow_;
  std::int64_t followed_ = 0, followed_out_ = 0;  // entries that a parameter's change renamed, or left out
  key_roles roles_;
  std::unordered_map<std::string, std::size_t> taken_;  // new name -> position in `kept`
  std::vector<std::string_view> names_;
};

}  // namespace

selection_result select_keys(std::span<const selectable> keys, const selection_options& options) {
  return key_selection(keys, options).run();
}

}  // namespace shardmesh
