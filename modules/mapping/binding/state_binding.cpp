// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.mapping;

import shardmesh.checkpoint;
import :rule_captures;
import :state_binding;
import :state_form;
import :state_kind;

namespace shardmesh {
namespace {

// Bounds the entries that follow: a rule may split a parameter into many, and each has all of its state.
constexpr std::size_t most_entries = std::size_t{1} << 22;

class state_binder {
 public:
  state_binder(const catalog& source, bound_mapping& made, std::vector<std::vector<std::size_t>>& users,
               function_ref<void(error why)> refuse)
      : source_(source), made_(made), users_(users), refuse_(refuse), instances_(made.instances.size()) {}

  void run() {
    std::vector<std::string_view> keys;
    for (const tensor_entry& tensor : source_.tensors) keys.push_back(tensor.key);
    for (const object_entry& object : source_.objects) keys.push_back(object.key);
    // Without one of these texts, no entry names its parameter.
    const bool has_state = std::any_of(keys.begin(), keys.end(), [](std::string_view key) {
      return key.find("state.") != std::string_view::npos || key.find("param_groups.") != std::string_view::npos;
    });
    if (!has_state) return;
    const state_names names(keys);
    for (std::size_t i = 0; i < keys.size(); ++i)
      if (names.is_state(i) && (i >= users_.size() || users_[i].empty())) sort(names, keys[i], i);
    for (std::size_t k = 0; k < instances_; ++k)
      for (const std::size_t parameter : made_.instances[k].sources) instance_of_.emplace(parameter, k);
    for (const auto& [kind, entries] : kinds_) {
      std::set<std::size_t> instances;
      for (const auto& [parameter, entry] : entries)
        if (const auto found = instance_of_.find(parameter); found != instance_of_.end())
          instances.insert(found->second);
      for (const std::size_t number : instances)
        if (!bind(kind, entries, number)) return;
    }
    leave_out();
    check_names();
  }

 private:
  using entries_of = std::map<std::size_t, std::size_t>;  // by the parameter's tensor

  // Adds the entry to its kind, or decides about an entry without a parameter.
  void sort(const state_names& names, std::string_view key, std::size_t index) {
    const bool is_tensor = index < source_.tensors.size();
    const std::vector<state_name> found = names.of(index);
    if (found.size() > 1) {
      if (is_tensor) users_[index].push_back(unused_user);
      refuse_(fail(errc::unsupported, fmt::format("this optimizer state belongs to '{}' or to '{}'",
                                                  key_of(found[0].parameter), key_of(found[1].parameter)))
                  .with_key(key)
                  .with_hint("leave one of the two out before the checkpoint is mapped"));
      return;
    }
    if (!found.empty() && found[0].parameter < source_.tensors.size()) {
      const std::string_view parameter = source_.tensors[found[0].parameter].key;
      const std::size_t end = found[0].begin + parameter.size() - found[0].prefix;
      const state_kind kind{is_tensor, key.substr(0, found[0].begin), key.substr(end),
                            parameter.substr(0, found[0].prefix)};
      kinds_[kind].emplace(found[0].parameter, index);
      return;
    }
    if (!is_tensor) return add_list(names, key, index - source_.tensors.size());
    users_[index].push_back(unused_user);
    if (has_component(key, "state") && !has_component(key, "param_groups"))
      refuse_(fail(errc::unsupported, "this optimizer state does not name its parameter, so it cannot follow a mapping")
                  .with_key(key)
                  .with_hint("leave the optimizer out first: convert the checkpoint with --no-optimizer"));
    else
      made_.kept.push_back(index);
  }

  std::string_view key_of(std::size_t index) const {
    return index < source_.tensors.size() ? source_.tensors[index].key
                                          : source_.objects[index - source_.tensors.size()].key;
  }

  void add_list(const state_names& names, std::string_view key, std::size_t object) {
    if (!key.ends_with(".params") || !has_component(key, "param_groups")) return;
    std::vector<std::string> prefixes = names.prefixes_of(key);
    if (prefixes.empty()) prefixes.emplace_back();
    bound_list list{object, {}};
    for (const std::string& prefix : prefixes) list.prefixes.push_back({prefix, std::string(kept_prefix(prefix))});
    made_.lists.push_back(std::move(list));
  }

  // Returns `prefix` if the keys of all targets begin with it, and otherwise nothing: the optimizer's names are then
  // the whole keys.
  std::string_view kept_prefix(std::string_view prefix) {
    const auto [found, is_new] = is_kept_.try_emplace(std::string(prefix), true);
    if (is_new)
      for (const bound_tensor& target : made_.tensors)
        if (target.instance < instances_ && (target.key.size() <= prefix.size() || !target.key.starts_with(prefix)))
          found->second = false;
    return found->second ? prefix : std::string_view{};
  }

  // Adds the state of one kind for the tensors of an instance. Returns false if there are too many entries.
  bool bind(const state_kind& kind, const entries_of& entries, std::size_t number) {
    std::vector<std::size_t> sources;
    std::string missing;
    for (const std::size_t parameter : made_.instances[number].sources) {
      const auto found = entries.find(parameter);
      if (found != entries.end())
        sources.push_back(found->second);
      else if (missing.empty())
        missing = source_.tensors[parameter].key;
    }
    const mapping_rule& rule = made_.rule_of(made_.instances[number]);
    for (const std::size_t one : sources) {
      if (kind.is_tensor) users_[one].push_back(made_.relations[made_.instances[number].relation].rule);
      handled_.insert(one);
    }
    if (!missing.empty()) {
      refuse_(
          fail(errc::missing_key, fmt::format("the checkpoint lacks optimizer state of this tensor, which {} joins "
                                              "with tensors that have it",
                                              described(rule)))
              .with_key(missing)
              .with_values(fmt::format("'{}' of all {} tensors", kind.name(), made_.instances[number].sources.size()),
                           fmt::format("that of {}", sources.size()))
              .with_hint("leave this state out before the checkpoint is mapped"));
      return true;
    }
    const std::size_t targets = made_.targets_of(number).size();
    if (targets > most_entries || made_.tensors.size() + made_.objects.size() > most_entries - targets) {
      refuse_(fail(errc::overflow, "the mapping makes too many entries of optimizer state")
                  .with_key(key_of(sources[0]))
                  .with_values(fmt::format("at most {}", most_entries), "more"));
      return false;
    }
    made_.followed_entries += static_cast<std::int64_t>(sources.size());
    if (kind.is_tensor)
      bind_tensors(kind, number, std::move(sources));
    else
      bind_objects(kind, number, sources);
    return true;
  }

  std::string new_key(const state_kind& kind, const bound_tensor& target) {
    const std::string_view name = std::string_view(target.key).substr(kept_prefix(kind.prefix).size());
    return fmt::format("{}{}{}", kind.before, name, kind.after);
  }

  void bind_objects(const state_kind& kind, std::size_t number, const std::vector<std::size_t>& sources) {
    std::vector<std::size_t> objects;
    for (const std::size_t one : sources) objects.push_back(one - source_.tensors.size());
    for (const bound_tensor& target : made_.targets_of(number))
      made_.objects.push_back({new_key(kind, target), objects});
  }

  void bind_tensors(const state_kind& kind, std::size_t number, std::vector<std::size_t> sources) {
    auto form = form_of(source_, made_, kind, number, sources);
    if (!form) return refuse_(std::move(form).error());
    bound_instance instance{made_.instances[number].relation, std::move(sources), made_.instances[number].first_source,
                            *form};
    if (auto done = check_dtype(source_, made_, instance); !done) return refuse_(std::move(done).error());
    const tensor_entry& first = source_.tensors[instance.sources[0]];
    const bool is_rename = made_.rule_of(instance).index.is_rename();
    const bool is_renamed = made_.renames(instance);
    std::vector<bound_tensor> targets;
    for (const bound_tensor& one : made_.targets_of(number)) {
      bound_tensor target = one;
      target.key = new_key(kind, one);
      target.type = first.type;
      target.instance = made_.instances.size();
      // A rename has one source, and may have any shape.
      if (is_rename || *form == bound_form::scalar) target.shape = first.shape;
      targets.push_back(std::move(target));
    }
    made_.renamed_tensors += is_renamed ? static_cast<std::int64_t>(targets.size()) : 0;
    if (*form != bound_form::scalar && !is_rename) count_filler(made_.relations[instance.relation].relation);
    made_.instances.push_back(std::move(instance));
    for (bound_tensor& target : targets) made_.tensors.push_back(std::move(target));
  }

  void count_filler(const index_relation& relation) {
    for (const related_tensor& one : relation.right)
      made_.filled_elements += box::whole(one.shape).volume() - one.related_elements;
    for (const related_tensor& one : relation.left)
      made_.dropped_elements += box::whole(one.shape).volume() - one.related_elements;
  }

  // Leaves out the state of tensors that are not used. A parameter that nothing uses has a problem of its own.
  void leave_out() {
    std::unordered_map<std::size_t, unused_tensor> unused;
    for (const unused_tensor& one : made_.unused) unused.emplace(one.source, one);
    for (const auto& [kind, entries] : kinds_)
      for (const auto& [parameter, entry] : entries) {
        if (!handled_.insert(entry).second) continue;
        if (kind.is_tensor) users_[entry].push_back(unused_user);
        if (const auto found = unused.find(parameter); found != unused.end())
          leave_out(kind, entries, found->second, entry);
      }
  }

  void leave_out(const state_kind& kind, const entries_of& entries, const unused_tensor& parameter, std::size_t entry) {
    if (!kind.is_tensor) {
      if (parameter.same_as && !entries.contains(*parameter.same_as))
        return refuse_(lacks_partner(entry, *parameter.same_as));
      return made_.unused_objects.push_back(entry - source_.tensors.size());
    }
    const tensor_entry& state = source_.tensors[entry];
    if (!parameter.same_as) {
      made_.unused.push_back(
          {entry, fmt::format("optimizer state of {}", escaped(source_.tensors[parameter.source].key)), {}});
      return;
    }
    const auto partner = entries.find(*parameter.same_as);
    const tensor_entry* const same = partner == entries.end() ? nullptr : &source_.tensors[partner->second];
    if (same == nullptr || same->shape != state.shape || same->type != state.type)
      return refuse_(lacks_partner(entry, *parameter.same_as));
    made_.unused.push_back({entry, fmt::format("tied to {}", escaped(same->key)), partner->second});
  }

  error lacks_partner(std::size_t entry, std::size_t partner) const {
    return fail(errc::missing_key,
                fmt::format("this is optimizer state of a tensor that is tied to '{}', for which the checkpoint has no "
                            "such state",
                            source_.tensors[partner].key))
        .with_key(key_of(entry))
        .with_hint("rename the state to the tied tensor, or leave the optimizer out first");
  }

  // Refuses entries that follow and get the name of another entry.
  void check_names() {
    std::unordered_set<std::string_view> names;
    std::unordered_set<std::size_t> gone(made_.unused_objects.begin(), made_.unused_objects.end());
    for (const bound_object& object : made_.objects) gone.insert(object.sources.begin(), object.sources.end());
    for (const std::size_t tensor : made_.kept) names.insert(source_.tensors[tensor].key);
    for (std::size_t i = 0; i < source_.objects.size(); ++i)
      if (!gone.contains(i)) names.insert(source_.objects[i].key);
    const auto add = [&](std::string_view key, bool follows) {
      if (!names.insert(key).second && follows)
        refuse_(fail(errc::duplicate_key, "optimizer state would get the name of another entry").with_key(key));
    };
    for (const bound_tensor& target : made_.tensors) add(target.key, target.instance >= instances_);
    for (const bound_object& object : made_.objects) add(object.key, true);
  }

  const catalog& source_;
  bound_mapping& made_;
  std::vector<std::vector<std::size_t>>& users_;
  function_ref<void(error why)> refuse_;
  std::size_t instances_;  // of rules; those of state follow
  std::map<state_kind, entries_of> kinds_;
  std::unordered_map<std::size_t, std::size_t> instance_of_;  // by source tensor
  std::unordered_set<std::size_t> handled_;  // entries of `kinds_`, among the keys of tensors and then objects
  std::unordered_map<std::string, bool> is_kept_;
};

}  // namespace

void bind_state(const catalog& source, bound_mapping& made, std::vector<std::vector<std::size_t>>& users,
                function_ref<void(error why)> refuse) {
  state_binder(source, made, users, refuse).run();
}

}  // namespace shardmesh
