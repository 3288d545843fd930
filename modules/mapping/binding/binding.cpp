// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

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
#include <utility>
#include <vector>
module shardmesh.mapping;

import :binding_problems;
import :rule_captures;
import :size_sources;
import :source_users;
import :state_binding;

namespace shardmesh {
namespace {

// Bounds the names that an untrusted configuration can generate.
constexpr std::int64_t most_names = std::int64_t{1} << 22;
constexpr std::int64_t most_name_bytes = std::int64_t{1} << 29;

class binder {
 public:
  binder(const mapping_rules& mapping, const catalog& source, const model_sizes& sizes)
      : source_(source), model_(sizes), problems_(mapping.file) {
    made_.mapping = mapping;
    users_.resize(source.tensors.size());
  }

  result<bound_mapping> run() {
    SHARDMESH_TRY(sizes_, model_.resolve(made_.mapping, missing_));
    for (const named_expression& one : made_.mapping.captures) {
      for (const named_expression& size : made_.mapping.sizes)
        if (size.name == one.name)
          return located(fail(errc::invalid_argument, fmt::format("'{}' is a size and a capture", one.name))
                             .with_hint("give one of them another name"));
      const auto found = sizes_.find(one.name);
      if (found == sizes_.end()) return located(missing_.find(one.name)->second);
      if (found->second < 0)
        return located(fail(errc::invalid_argument, fmt::format("the range of the capture '{}' is negative", one.name))
                           .with_values("0 or more", fmt::format("{}", found->second)));
      ranges_.emplace(one.name, found->second);
    }
    for (std::size_t r = 0; r < made_.mapping.rules.size(); ++r) SHARDMESH_TRY(bind_rule(r));
    for (const ignored_tensors& one : made_.mapping.ignored)
      if (one.is_left) SHARDMESH_TRY(ignore(one));
    for (const tied_tensor& one : made_.mapping.tied)
      if (one.is_left) SHARDMESH_TRY(tie(one));
    const auto report = [&](error why) { refuse(std::move(why)); };
    bind_state(source_, made_, users_, report);
    check_users(source_, made_, users_, problems_);
    if (!problems_.empty()) return std::move(problems_).take();
    return std::move(made_);
  }

 private:
  error located(error e) const { return problems_.located(std::move(e)); }
  void refuse(error e) { problems_.add(std::move(e)); }

  bool is_capture(const std::string& name) const { return ranges_.contains(name); }

  // Calls `visit` for each assignment of the captures, in row-major order; `sizes_` then has their values.
  template <class Visit>
  result<void> for_each_value(const std::vector<std::string>& captures, const Visit& visit) {
    std::int64_t count = 1;
    for (const std::string& name : captures)
      count = checked_multiply(count, ranges_.find(name)->second).value_or(most_names + 1);
    if (count > most_names || names_ > most_names - count) {
      std::string found;
      for (const auto& [name, range] : ranges_)
        found += fmt::format("{}{} = {}", found.empty() ? "" : ", ", name, range);
      return located(fail(errc::overflow, "the ranges of the captures make too many names")
                         .with_values(fmt::format("at most {}", most_names), std::move(found))
                         .with_hint("check the configuration, or pass a range as a size"));
    }
    names_ += count;
    named_sizes before;
    for (const std::string& name : captures) {
      const auto found = sizes_.find(name);
      if (found != sizes_.end()) before.insert(*found);
    }
    result<void> done;
    for (std::int64_t i = 0; i < count && done; ++i) {
      if (problems_.are_too_many()) return std::move(problems_).take();
      std::int64_t rest = i;
      for (std::size_t c = captures.size(); c-- > 0;) {
        const std::int64_t range = ranges_.find(captures[c])->second;
        sizes_[captures[c]] = rest % range;
        rest /= range;
      }
      done = visit();
    }
    for (const std::string& name : captures) {
      const auto found = before.find(name);
      if (found != before.end()) sizes_[name] = found->second;
    }
    return done;
  }

  // `captures` have values. Other captures have only ranges, so a condition cannot use them.
  result<bool> applies(const std::optional<size_expression>& condition, const std::vector<std::string>& captures) {
    if (!condition) return true;
    for (const std::string& name : condition->names())
      if (is_capture(name) && std::find(captures.begin(), captures.end(), name) == captures.end())
        return located(fail(errc::invalid_argument,
                            fmt::format("the condition '{}' uses the capture '{}', which has no one value here",
                                        condition->text(), name))
                           .with_hint("use captures that the names of both sides have"));
    auto value = condition->evaluate(sizes_);
    if (!value) return located(std::move(value).error());
    return *value != 0;
  }

  // Spells a name for all values of the stacked captures.
  result<std::vector<std::string>> spell_all(const name_template& name, const std::vector<std::string>& stacked) {
    std::vector<std::string> made;
    SHARDMESH_TRY(for_each_value(stacked, [&]() -> result<void> {
      auto spelled = name.spell(sizes_);
      if (!spelled) return located(std::move(spelled).error());
      if ((name_bytes_ += static_cast<std::int64_t>(spelled->size())) > most_name_bytes)
        return located(fail(errc::overflow, "the names that the captures make are too long together")
                           .with_values(fmt::format("at most {} bytes", most_name_bytes), "more"));
      made.push_back(*std::move(spelled));
      return {};
    }));
    return made;
  }

  result<void> bind_rule(std::size_t number) {
    const mapping_rule& rule = made_.mapping.rules[number];
    const auto found = captures_of(rule, ranges_);
    if (!found) return located(found.error());
    const rule_captures& captures = *found;
    known_ = {};
    return for_each_value(captures.shared, [&]() -> result<void> {
      SHARDMESH_TRY(const bool is_active, applies(rule.condition, captures.shared));
      return is_active ? bind_instance(number, captures) : result<void>{};
    });
  }

  // The source tensors of an instance, and their common properties.
  struct instance_sources {
    bound_instance instance;
    std::vector<extents> shapes;  // per left tensor, with the stacked dimensions first
    dtype type = dtype::undefined;
    std::size_t missing = 0;
    bool is_consistent = true;
  };

  result<instance_sources> find_sources(const mapping_rule& rule, const rule_captures& captures) {
    instance_sources found;
    std::vector<std::string> missing;
    for (std::size_t t = 0; t < rule.left.size(); ++t) {
      SHARDMESH_TRY(const auto keys, spell_all(rule.left[t].name, captures.left_stacked[t]));
      found.instance.first_source.push_back(found.instance.sources.size());
      extents shape;
      for (const std::string& name : captures.left_stacked[t]) shape.push_back(ranges_.find(name)->second);
      const tensor_entry* first = nullptr;
      for (const std::string& key : keys) {
        const tensor_entry* const entry = source_.find(key);
        if (entry == nullptr) {
          missing.push_back(key);
          continue;
        }
        found.instance.sources.push_back(static_cast<std::size_t>(entry - source_.tensors.data()));
        if (first == nullptr) {
          first = entry;
          if (shape.rank() + entry->shape.rank() > max_rank) {
            found.is_consistent = false;
            refuse(fail(errc::rank_too_large, fmt::format("{} stacks tensors of too many dimensions", described(rule)))
                       .with_key(key)
                       .with_values(fmt::format("at most {}", max_rank),
                                    fmt::format("{}", shape.rank() + entry->shape.rank())));
            continue;
          }
          for (const std::int64_t size : entry->shape) shape.push_back(size);
        } else if (entry->shape != first->shape) {
          found.is_consistent = false;
          refuse(fail(errc::shape_mismatch, fmt::format("{} stacks tensors of several shapes", described(rule)))
                     .with_key(key)
                     .with_values(to_string(first->shape), to_string(entry->shape)));
        }
        if (found.type == dtype::undefined) found.type = entry->type;
        if (entry->type != found.type) {
          found.is_consistent = false;
          refuse(fail(errc::dtype_mismatch, fmt::format("{} joins tensors of several dtypes", described(rule)))
                     .with_key(key)
                     .with_values(std::string(name(found.type)), std::string(name(entry->type)))
                     .with_hint("cast them first"));
        }
      }
      found.shapes.push_back(shape);
    }
    found.missing = missing.size();
    if (rule.is_optional && found.instance.sources.empty()) return found;
    if (rule.is_optional && !missing.empty()) {
      std::vector<std::string> present;
      for (const std::size_t source : found.instance.sources) present.push_back(source_.tensors[source].key);
      refuse(fail(errc::missing_key,
                  fmt::format("{} is optional, and the checkpoint has only some of its tensors", described(rule)))
                 .with_key(missing[0])
                 .with_values(fmt::format("all {} tensors, or none", missing.size() + present.size()),
                              fmt::format("{}, without {}", name_list(present), name_list(missing)))
                 .with_hint("add the missing tensors, or remove the others"));
      return found;
    }
    for (const std::string& key : missing)
      refuse(fail(errc::missing_key, fmt::format("{} needs this tensor, and the checkpoint lacks it", described(rule)))
                 .with_key(key)
                 .with_hint(problems_.may_suggest() ? did_you_mean(nearest_key(source_, key)) : ""));
    return found;
  }

  result<void> bind_instance(std::size_t number, const rule_captures& captures) {
    const mapping_rule& rule = made_.mapping.rules[number];
    SHARDMESH_TRY(instance_sources found, find_sources(rule, captures));
    for (const std::size_t source : found.instance.sources) users_[source].push_back(number);
    if (found.missing > 0 || !found.is_consistent) return {};
    const tensor_entry* const first =
        found.instance.sources.empty() ? nullptr : &source_.tensors[found.instance.sources[0]];
    auto relation = relation_of(number, captures, found);
    if (!relation) {
      error why = std::move(relation).error();
      why.message = fmt::format("{}: {}", described(rule), why.message);
      if (why.key.empty() && first != nullptr) why.key = first->key;
      refuse(std::move(why));
      return {};
    }
    found.instance.relation = *relation;
    const bound_relation& bound = made_.relations[*relation];
    const bool is_rename = rule.index.is_rename();
    const bool is_computed = !is_rename || !rule.values.empty();
    if (is_computed && first != nullptr &&
        (bits(found.type) == 0 || bits(found.type) % 8 != 0 || !first->opaque_type.empty())) {
      refuse(fail(errc::unsupported, fmt::format("{} cannot compute with tensors of this kind", described(rule)))
                 .with_key(first->key)
                 .with_values("a dtype of whole bytes",
                              first->opaque_type.empty() ? std::string(name(found.type)) : first->opaque_kind));
      return {};
    }
    if (!rule.values.empty() && first != nullptr && !is_floating(found.type)) {
      refuse(fail(errc::unsupported,
                  fmt::format("{} has operations on values, which need a floating-point dtype", described(rule)))
                 .with_key(first->key)
                 .with_values("a floating-point dtype", std::string(name(found.type))));
      return {};
    }
    const std::size_t instance = made_.instances.size();
    for (std::size_t t = 0; t < rule.right.size(); ++t) {
      SHARDMESH_TRY(auto keys, spell_all(rule.right[t].name, captures.right_stacked[t]));
      extents shape = is_rename ? found.shapes[0] : bound.relation.right[t].shape;
      extents stacks, rest;
      for (std::size_t d = 0; d < shape.rank(); ++d)
        (d < captures.right_stacked[t].size() ? stacks : rest).push_back(shape[d]);
      const extents strides = contiguous_strides(stacks);
      for (std::size_t k = 0; k < keys.size(); ++k) {
        const auto [taken, is_new] = makers_.emplace(keys[k], number);
        if (!is_new)
          refuse(fail(errc::duplicate_key, fmt::format("{} makes a tensor that {} makes, too", described(rule),
                                                       described(made_.mapping.rules[taken->second])))
                     .with_key(keys[k]));
        bound_tensor made{std::move(keys[k]), found.type, rest, instance, t, {}};
        for (std::size_t d = 0; d < stacks.rank(); ++d)
          made.stacked.push_back(static_cast<std::int64_t>(k) / strides[d] % std::max(stacks[d], std::int64_t{1}));
        made_.tensors.push_back(std::move(made));
        made_.renamed_tensors += is_computed ? 0 : 1;
      }
      if (!is_rename) made_.filled_elements += box::whole(shape).volume() - bound.relation.right[t].related_elements;
    }
    for (std::size_t t = 0; t < bound.relation.left.size(); ++t) {
      const related_tensor& one = bound.relation.left[t];
      const std::int64_t elements = box::whole(one.shape).volume();
      made_.dropped_elements += elements - one.related_elements;
      if (elements == 0 || one.related_elements > 0) continue;
      const std::size_t end = t + 1 < found.instance.first_source.size() ? found.instance.first_source[t + 1]
                                                                         : found.instance.sources.size();
      for (std::size_t s = found.instance.first_source[t]; s < end; ++s)
        made_.unused.push_back(
            {found.instance.sources[s], fmt::format("{} has it as filler only", described(rule)), {}});
    }
    made_.instances.push_back(std::move(found.instance));
    return {};
  }

  // Returns a hint with the sizes of a tensor whose shape contradicts them, and their origins.
  std::string hint_of_sizes(const index_tensor& tensor, const named_sizes& values) const {
    if (!problems_.may_suggest()) return {};
    const std::string origins = size_sources(tensor, values, made_.mapping, model_);
    return origins.empty() ? origins : fmt::format("correct one of the sizes, or the rule: {}", origins);
  }

  // Returns the relation for these shapes, which is usually that of the rule's previous instance.
  result<std::size_t> relation_of(std::size_t number, const rule_captures& captures, const instance_sources& found) {
    const std::vector<extents>& shapes = found.shapes;
    // The members of a stacked tensor have the same shape, so the first one has that of all.
    const auto key_of = [&](std::size_t tensor) {
      const std::size_t source = found.instance.first_source[tensor];
      return source < found.instance.sources.size() ? source_.tensors[found.instance.sources[source]].key
                                                    : std::string();
    };
    if (const auto known = known_.find(shapes); known != known_.end()) return known->second;
    bound_relation made{number, {}, {}, {}};
    for (const auto& stacked : captures.left_stacked) made.left_stacked.push_back(stacked.size());
    for (const auto& stacked : captures.right_stacked) made.right_stacked.push_back(stacked.size());
    if (!captures.index.is_rename()) {
      named_sizes sizes = sizes_;
      for (const auto* side : {&captures.left_stacked, &captures.right_stacked})
        for (const auto& stacked : *side)
          for (const std::string& name : stacked) sizes[name] = ranges_.find(name)->second;
      for (std::size_t t = 0; t < shapes.size(); ++t)
        if (const std::size_t rank = captures.index.left[t].dimensions.size(); shapes[t].rank() != rank)
          return fail(errc::shape_mismatch, fmt::format("'{}' has another number of dimensions than in the rule",
                                                        captures.index.left[t].alias))
              .with_key(key_of(t))
              .with_values(fmt::format("{} dimensions", rank), to_string(shapes[t]));
      const std::vector<std::optional<extents>> left(shapes.begin(), shapes.end());
      const std::vector<std::optional<extents>> right(captures.index.right.size());
      if (auto inferred = infer_sizes(captures.index, left, right, sizes); !inferred) {
        error why = std::move(inferred).error();
        for (const index_tensor& tensor : captures.index.left)
          if (why.message.find(fmt::format("'{}'", tensor.alias)) != std::string::npos)
            why.hint = hint_of_sizes(tensor, sizes);
        return why;
      }
      auto related = relate(captures.index, sizes);
      if (!related) {
        // If a size is unknown, reports the reason.
        if (related.error().code == errc::missing_key)
          for (const auto& [name, why] : missing_)
            if (related.error().message.find(fmt::format("'{}'", name)) != std::string::npos) return why;
        return std::move(related).error();
      }
      made.relation = *std::move(related);
      for (std::size_t t = 0; t < shapes.size(); ++t)
        if (made.relation.left[t].shape != shapes[t])
          return fail(errc::shape_mismatch,
                      fmt::format("'{}' has another shape than the sizes give", made.relation.left[t].alias))
              .with_key(key_of(t))
              .with_values(to_string(made.relation.left[t].shape), to_string(shapes[t]))
              .with_hint(hint_of_sizes(captures.index.left[t], sizes));
    }
    made_.relations.push_back(std::move(made));
    known_.emplace(shapes, made_.relations.size() - 1);
    return made_.relations.size() - 1;
  }

  // Calls `visit` for each tensor of the checkpoint that the name matches, where the condition holds.
  template <class Visit>
  result<void> for_each_entry(const name_template& name, const std::optional<size_expression>& condition,
                              const Visit& visit) {
    std::vector<std::string> captures;
    for (const std::string& one : name.captures())
      if (is_capture(one)) captures.push_back(one);
    return for_each_value(captures, [&]() -> result<void> {
      SHARDMESH_TRY(const bool is_active, applies(condition, captures));
      if (!is_active) return {};
      auto key = name.spell(sizes_);
      if (!key) return located(std::move(key).error());
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
      auto key = one.same_as.spell(sizes_);
      if (!key) return located(std::move(key).error());
      const tensor_entry* const partner = source_.find(*key);
      const tensor_entry& tied = source_.tensors[source];
      if (partner == nullptr || partner == &tied || partner->shape != tied.shape || partner->type != tied.type) {
        refuse(
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
  named_sizes sizes_;                                    // with the values of the captures during a visit
  std::map<std::string, error, std::less<>> missing_;    // sizes that could not be computed
  capture_ranges ranges_;                                // of the captures
  std::map<std::vector<extents>, std::size_t> known_;    // relations of the current rule, by shapes
  std::vector<std::vector<std::size_t>> users_;          // per source tensor: rules
  std::unordered_map<std::string, std::size_t> makers_;  // of targets: rules
  binding_problems problems_;
  std::int64_t names_ = 0, name_bytes_ = 0;
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
