// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.mapping;

import shardmesh.checkpoint_core;
import :binding_problems;
import :capture_values;
import :rule_captures;
import :rule_relations;
import :rule_sources;
import :size_sources;

namespace shardmesh {

void rule_relations::begin_rule() {
  known_.clear();
}

result<std::size_t> rule_relations::relation_of(std::size_t rule, const rule_captures& captures,
                                                const instance_sources& found, const capture_values& values) {
  if (const auto known = known_.find(found.shapes); known != known_.end()) return known->second;
  bound_relation made{rule, {}, {}, {}};
  for (const auto& stacked : captures.left_stacked) made.left_stacked.push_back(stacked.size());
  for (const auto& stacked : captures.right_stacked) made.right_stacked.push_back(stacked.size());
  if (!captures.index.is_rename()) {
    named_sizes sizes = values.sizes();
    for (const auto* side : {&captures.left_stacked, &captures.right_stacked})
      for (const auto& stacked : *side)
        for (const std::string& name : stacked) sizes[name] = values.range_of(name);
    SHARDMESH_TRY(made.relation, relate_shapes(captures, found, std::move(sizes)));
  }
  made_.relations.push_back(std::move(made));
  known_.emplace(found.shapes, made_.relations.size() - 1);
  return made_.relations.size() - 1;
}

result<index_relation> rule_relations::relate_shapes(const rule_captures& captures, const instance_sources& found,
                                                     named_sizes sizes) const {
  const std::vector<extents>& shapes = found.shapes;
  const std::vector<std::size_t>& begins = found.instance.first_source;
  for (std::size_t t = 0; t < shapes.size(); ++t) {
    const std::size_t rank = captures.index.left[t].dimensions.size();
    if (shapes[t].rank() == rank) continue;
    const std::string& alias = captures.index.left[t].alias;
    // Only the dimensions of the captures are known.
    if (begins[t] == (t + 1 < begins.size() ? begins[t + 1] : found.instance.sources.size()))
      return fail(errc::invalid_argument,
                  fmt::format("'{}' is no tensor, because a capture of its name has no values", alias))
          .with_hint("correct the capture's number of values, or give the rule an 'if'");
    return fail(errc::shape_mismatch, fmt::format("'{}' has another number of dimensions than in the rule", alias))
        .with_key(key_of(found, t))
        .with_values(detail::counted(rank, "dimension"), to_string(shapes[t]));
  }
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
    // Reports the reason why the size is unknown, in place of the missing name.
    if (related.error().code == errc::missing_key)
      for (const auto& [name, why] : missing_)
        if (related.error().message.find(fmt::format("'{}'", name)) != std::string::npos) return why;
    return std::move(related).error();
  }
  for (std::size_t t = 0; t < shapes.size(); ++t)
    if (related->left[t].shape != shapes[t])
      return fail(errc::shape_mismatch,
                  fmt::format("'{}' has another shape than the sizes give", related->left[t].alias))
          .with_key(key_of(found, t))
          .with_values(to_string(related->left[t].shape), to_string(shapes[t]))
          .with_hint(hint_of_sizes(captures.index.left[t], sizes));
  return related;
}

// The members of a stacked tensor have the same shape, so the first one stands for all.
std::string rule_relations::key_of(const instance_sources& found, std::size_t tensor) const {
  const std::size_t source = found.instance.first_source[tensor];
  return source < found.instance.sources.size() ? source_.tensors[found.instance.sources[source]].key : std::string();
}

// Returns a hint with the sizes of a tensor whose shape contradicts them, and their origins.
std::string rule_relations::hint_of_sizes(const index_tensor& tensor, const named_sizes& values) const {
  if (!problems_.may_suggest()) return {};
  const std::string origins = size_sources(tensor, values, made_.mapping, model_);
  return origins.empty() ? origins : fmt::format("correct one of the sizes, or the rule: {}", origins);
}

}  // namespace shardmesh
