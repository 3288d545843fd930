// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>
module shardmesh.mapping;

import :mapping_notes;

namespace shardmesh {
namespace {

// A note about the tensors whose operations on values are rounded to fewer digits than those of float32; empty without
// such tensors. A negation is exact.
std::string note_of_rounding(const bound_mapping& bound) {
  std::int64_t count = 0;
  const bound_tensor* first = nullptr;
  for (const bound_tensor& one : bound.tensors) {
    const bound_instance& instance = bound.instances[one.instance];
    const std::vector<value_step>& steps = bound.rule_of(instance).values;
    const bool is_rounded = std::any_of(
        steps.begin(), steps.end(), [](const value_step& step) { return step.what != value_step::operation::negate; });
    if (instance.form != bound_form::rule || !is_rounded || widens(dtype::float32, one.type)) continue;
    ++count;
    if (first == nullptr) first = &one;
  }
  if (first == nullptr) return {};
  return fmt::format(
      "the operations on values of {} are rounded to {}, the first of them {}; a cast to float32 before "
      "the mapping keeps more digits",
      detail::counted(count, "tensor"), name(first->type), escaped(first->key));
}

}  // namespace

std::vector<std::string> notes_of(const bound_mapping& bound, const catalog& source) {
  std::vector<std::string> notes;
  const auto computed = static_cast<std::int64_t>(bound.tensors.size()) - bound.renamed_tensors;
  notes.push_back(fmt::format("mapped from {} to {}: {} renamed, {} computed", bound.mapping.left, bound.mapping.right,
                              detail::counted(bound.renamed_tensors, "tensor"), computed));
  if (bound.filled_elements > 0)
    notes.push_back(
        fmt::format("{} that the mapping fills with zeros", detail::counted(bound.filled_elements, "element")));
  if (bound.dropped_elements > 0)
    notes.push_back(fmt::format("{} of filler not used", detail::counted(bound.dropped_elements, "element")));
  if (std::string rounding = note_of_rounding(bound); !rounding.empty()) notes.push_back(std::move(rounding));
  if (bound.followed_entries > 0)
    notes.push_back(fmt::format("{} of optimizer state follow{} the parameters",
                                detail::counted(bound.followed_entries, "entry", "entries"),
                                bound.followed_entries == 1 ? "s" : ""));
  if (!bound.kept.empty())
    notes.push_back(fmt::format("{} of an optimizer unchanged: no parameter in the name",
                                detail::counted(static_cast<std::int64_t>(bound.kept.size()), "tensor")));
  for (const unused_tensor& one : bound.unused)
    notes.push_back(fmt::format("{} is not used: {}", escaped(source.tensors[one.source].key), one.reason));
  for (const std::size_t object : bound.unused_objects)
    notes.push_back(fmt::format("{} is not used: its parameter is not used", escaped(source.objects[object].key)));
  return notes;
}

}  // namespace shardmesh
