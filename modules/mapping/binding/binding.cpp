// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.mapping;

import :binding_problems;
import :capture_values;
import :rule_captures;
import :rule_relations;
import :rule_sources;
import :source_users;
import :state_binding;

namespace shardmesh {
namespace {

// Returns why a rule cannot compute with tensors like this source, of this dtype; nothing if it can.
std::optional<error> refusal_of(const mapping_rule& rule, const tensor_entry& source, dtype type) {
  const bool is_computed = !rule.index.is_rename() || !rule.values.empty();
  if (is_computed && (bits(type) == 0 || bits(type) % 8 != 0 || !source.opaque_type.empty()))
    return fail(errc::unsupported, fmt::format("{} cannot compute with tensors of this kind", described(rule)))
        .with_key(source.key)
        .with_values("a dtype of whole bytes",
                     source.opaque_type.empty() ? std::string(name(type)) : source.opaque_kind);
  if (!rule.values.empty() && !is_floating(type))
    return fail(errc::unsupported,
                fmt::format("{} has operations on values, which need a floating-point dtype", described(rule)))
        .with_key(source.key)
        .with_values("a floating-point dtype", std::string(name(type)));
  return std::nullopt;
}

class binder {
 public:
  binder(const mapping_rules& mapping, const catalog& source, const model_sizes& sizes)
      : source_(source),
        model_(sizes),
        problems_(mapping.file),
        values_(problems_),
        relations_(source, sizes, missing_, problems_, made_) {
    made_.mapping = mapping;
    users_.resize(source.tensors.size());
  }

  result<bound_mapping> run() {
    SHARDMESH_TRY(named_sizes sizes, model_.resolve(made_.mapping, missing_));
    SHARDMESH_TRY(values_.set(made_.mapping, std::move(sizes), missing_));
    for (const refused_models& one : made_.mapping.refused) SHARDMESH_TRY(check_model(one));
    for (std::size_t r = 0; r < made_.mapping.rules.size(); ++r) SHARDMESH_TRY(bind_rule(r));
    for (const ignored_tensors& one : made_.mapping.ignored)
      if (one.is_left) SHARDMESH_TRY(ignore(one));
    for (const tied_tensor& one : made_.mapping.tied)
      if (one.is_left) SHARDMESH_TRY(tie(one));
    const auto report = [&](error why) { problems_.add(std::move(why)); };
    bind_state(source_, made_, users_, report);
    check_users(source_, made_, users_, problems_);
    if (!problems_.empty()) return std::move(problems_).take();
    return std::move(made_);
  }

 private:
  result<void> check_model(const refused_models& refused) const {
    SHARDMESH_TRY(const bool is_refused, values_.applies(refused.condition, {}));
    if (!is_refused) return {};
    const std::string place = refused.line > 0 ? fmt::format(" (line {})", refused.line) : "";
    return problems_.located(
        fail(errc::unsupported, fmt::format("the mapping is not for this model: {}{}", refused.reason, place))
            .with_values(fmt::format("0 as the value of '{}'", refused.condition.text()), "another value")
            .with_hint("name another convention, or pass the configuration of the right model"));
  }

  result<void> bind_rule(std::size_t number) {
    const mapping_rule& rule = made_.mapping.rules[number];
    const auto found = captures_of(rule, values_.ranges());
    if (!found) return problems_.located(found.error());
    const rule_captures& captures = *found;
    relations_.begin_rule();
    return values_.for_each(captures.shared, [&]() -> result<void> {
      SHARDMESH_TRY(const bool is_active, values_.applies(rule.condition, captures.shared));
      return is_active ? bind_instance(number, captures) : result<void>{};
    });
  }

  result<void> bind_instance(std::size_t number, const rule_captures& captures) {
    const mapping_rule& rule = made_.mapping.rules[number];
    SHARDMESH_TRY(instance_sources found, find_sources(rule, captures, source_, values_, problems_));
    for (const std::size_t source : found.instance.sources) users_[source].push_back(number);
    if (found.missing > 0 || !found.is_consistent) return {};
    const tensor_entry* const first =
        found.instance.sources.empty() ? nullptr : &source_.tensors[found.instance.sources[0]];
    auto relation = relations_.relation_of(number, captures, found, values_);
    if (!relation) {
      error why = std::move(relation).error();
      why.message = fmt::format("{}: {}", described(rule), why.message);
      if (why.key.empty() && first != nullptr) why.key = first->key;
      problems_.add(std::move(why));
      return {};
    }
    found.instance.relation = *relation;
    if (first != nullptr)
      if (auto why = refusal_of(rule, *first, found.type)) {
        problems_.add(*std::move(why));
        return {};
      }
    SHARDMESH_TRY(add_targets(number, captures, found));
    add_unused(rule, found.instance);
    made_.instances.push_back(std::move(found.instance));
    return {};
  }

  // Adds the tensors that an instance makes.
  result<void> add_targets(std::size_t number, const rule_captures& captures, const instance_sources& found) {
    const mapping_rule& rule = made_.mapping.rules[number];
    const index_relation& relation = made_.relations[found.instance.relation].relation;
    const bool is_rename = rule.index.is_rename();
    const bool is_computed = !is_rename || !rule.values.empty();
    const std::size_t instance = made_.instances.size();
    for (std::size_t t = 0; t < rule.right.size(); ++t) {
      SHARDMESH_TRY(auto keys, values_.spell_all(rule.right[t].name, captures.right_stacked[t]));
      extents shape = is_rename ? found.shapes[0] : relation.right[t].shape;
      extents stacks, rest;
      for (std::size_t d = 0; d < shape.rank(); ++d)
        (d < captures.right_stacked[t].size() ? stacks : rest).push_back(shape[d]);
      const extents strides = contiguous_strides(stacks);
      for (std::size_t k = 0; k < keys.size(); ++k) {
        const auto [taken, is_new] = makers_.emplace(keys[k], number);
        if (!is_new)
          problems_.add(fail(errc::duplicate_key, fmt::format("{} makes a tensor that {} also makes", described(rule),
                                                              described(made_.mapping.rules[taken->second])))
                            .with_key(keys[k]));
        bound_tensor made{std::move(keys[k]), found.type, rest, instance, t, {}};
        for (std::size_t d = 0; d < stacks.rank(); ++d)
          made.stacked.push_back(static_cast<std::int64_t>(k) / strides[d] % std::max(stacks[d], std::int64_t{1}));
        made_.tensors.push_back(std::move(made));
        made_.renamed_tensors += is_computed ? 0 : 1;
      }
      if (!is_rename) made_.filled_elements += box::whole(shape).volume() - relation.right[t].related_elements;
    }
    return {};
  }

  // Adds the sources of an instance that it does not use: they are filler, or some of their elements are.
  void add_unused(const mapping_rule& rule, const bound_instance& instance) {
    const index_relation& relation = made_.relations[instance.relation].relation;
    for (std::size_t t = 0; t < relation.left.size(); ++t) {
      const related_tensor& one = relation.left[t];
      const std::int64_t elements = box::whole(one.shape).volume();
      made_.dropped_elements += elements - one.related_elements;
      if (elements == 0 || one.related_elements > 0) continue;
      const std::size_t end =
          t + 1 < instance.first_source.size() ? instance.first_source[t + 1] : instance.sources.size();
      for (std::size_t s = instance.first_source[t]; s < end; ++s)
        made_.unused.push_back({instance.sources[s], fmt::format("{} has it as filler only", described(rule)), {}});
    }
  }

  // Calls `visit` for each tensor of the checkpoint that the name matches, where the condition holds.
  template <class Visit>
  result<void> for_each_entry(const name_template& name, const std::optional<size_expression>& condition,
                              const Visit& visit) {
    std::vector<std::string> captures;
    for (const std::string& one : name.captures())
      if (values_.is_capture(one)) captures.push_back(one);
    return values_.for_each(captures, [&]() -> result<void> {
      SHARDMESH_TRY(const bool is_active, values_.applies(condition, captures));
      if (!is_active) return {};
      auto key = name.spell(values_.sizes());
      if (!key) return problems_.located(std::move(key).error());
      const tensor_entry* const entry = source_.find(*key);
      return entry == nullptr ? result<void>{} : visit(static_cast<std::size_t>(entry - source_.tensors.data()));
    });
  }

  result<void> ignore(const ignored_tensors& one) {
    return for_each_entry(one.name, one.condition, [&](std::size_t source) -> result<void> {
      users_[source].push_back(unused_user);
      made_.unused.push_back({source, one.reason, {}});
      return {};
    });
  }

  result<void> tie(const tied_tensor& one) {
    return for_each_entry(one.name, one.condition, [&](std::size_t source) -> result<void> {
      auto key = one.same_as.spell(values_.sizes());
      if (!key) return problems_.located(std::move(key).error());
      const tensor_entry* const partner = source_.find(*key);
      const tensor_entry& tied = source_.tensors[source];
      if (partner == nullptr || partner == &tied || partner->shape != tied.shape || partner->type != tied.type) {
        problems_.add(
            fail(errc::missing_key, fmt::format("this tensor is tied to '{}', which the checkpoint lacks, or has with "
                                                "another shape or dtype",
                                                *key))
                .with_key(tied.key));
        return {};
      }
      users_[source].push_back(unused_user);
      made_.unused.push_back(
          {source, fmt::format("tied to {}", *key), static_cast<std::size_t>(partner - source_.tensors.data())});
      return {};
    });
  }

  const catalog& source_;
  const model_sizes& model_;
  bound_mapping made_;
  missing_sizes missing_;
  std::vector<std::vector<std::size_t>> users_;          // per source tensor: rules
  std::unordered_map<std::string, std::size_t> makers_;  // of targets: rules
  binding_problems problems_;
  capture_values values_;
  rule_relations relations_;
};

}  // namespace

bool bound_mapping::renames(const bound_instance& instance) const {
  const mapping_rule& rule = rule_of(instance);
  switch (instance.form) {
    case bound_form::rule:
      return rule.index.is_rename() && rule.values.empty();
    case bound_form::elements:
      return rule.index.is_rename();
    case bound_form::scalar:
      return instance.sources.size() == 1;
  }
  return false;
}

std::span<const bound_tensor> bound_mapping::targets_of(std::size_t instance) const {
  const auto first = std::partition_point(tensors.begin(), tensors.end(),
                                          [&](const bound_tensor& one) { return one.instance < instance; });
  const auto last =
      std::partition_point(first, tensors.end(), [&](const bound_tensor& one) { return one.instance == instance; });
  return {first, last};
}

result<bound_mapping> bind_mapping(const mapping_rules& mapping, const catalog& source, const model_sizes& sizes) {
  return binder(mapping, source, sizes).run();
}

}  // namespace shardmesh
