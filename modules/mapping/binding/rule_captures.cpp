// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>
module shardmesh.mapping;

import :rule_captures;

namespace shardmesh {
namespace {

// A capture of names on both sides has one value in each instance of a rule, and is not a size.
result<void> check_factors(const mapping_rule& rule, const index_tensor& tensor,
                           const std::vector<std::string>& shared) {
  const auto check = [&](const index_factor& factor) -> result<void> {
    if (std::find(shared.begin(), shared.end(), factor.name) == shared.end()) return {};
    return fail(errc::invalid_argument,
                fmt::format("{} has the factor '{}', which is a capture of the names on both sides", described(rule),
                            factor.name))
        .with_hint("give the size another name");
  };
  for (const std::vector<index_term>& dimension : tensor.dimensions)
    for (const index_term& term : dimension) {
      SHARDMESH_TRY(check(term.factor));
      for (const index_segment& segment : term.segments)
        for (const index_factor& factor : segment.factors) SHARDMESH_TRY(check(factor));
    }
  return {};
}

}  // namespace

std::string described(const mapping_rule& rule) {
  return rule.line > 0 ? fmt::format("the rule '{}' (line {})", rule.name, rule.line)
                       : fmt::format("the rule '{}'", rule.name);
}

result<rule_captures> captures_of(const mapping_rule& rule, const capture_ranges& ranges) {
  const auto is_capture = [&](const std::string& name) { return ranges.contains(name); };
  rule_captures made;
  const auto has = [](const std::vector<named_tensor>& side, const std::string& capture) {
    return std::any_of(side.begin(), side.end(), [&](const named_tensor& tensor) {
      const auto& names = tensor.name.captures();
      return std::find(names.begin(), names.end(), capture) != names.end();
    });
  };
  for (const named_tensor& tensor : rule.left)
    for (const std::string& name : tensor.name.captures())
      if (is_capture(name) && has(rule.right, name) &&
          std::find(made.shared.begin(), made.shared.end(), name) == made.shared.end())
        made.shared.push_back(name);
  made.index = rule.index;
  const auto stack = [&](const std::vector<named_tensor>& side, std::vector<index_tensor>& tensors,
                         std::vector<std::vector<std::string>>& stacked) -> result<void> {
    for (std::size_t t = 0; t < side.size(); ++t) {
      std::vector<std::string>& here = stacked.emplace_back();
      for (const std::string& name : side[t].name.captures())
        if (is_capture(name) && std::find(made.shared.begin(), made.shared.end(), name) == made.shared.end())
          here.push_back(name);
      if (here.empty()) continue;
      if (tensors.empty())
        return fail(errc::invalid_argument,
                    fmt::format("{} has the capture '{}' on one side only", described(rule), here[0]))
            .with_hint("add an index expression, in which it is a factor of the other side");
      auto& dimensions = tensors[t].dimensions;
      if (here.size() + dimensions.size() > max_rank)
        return fail(errc::rank_too_large,
                    fmt::format("{} has a tensor of too many dimensions, with the captures of its name",
                                described(rule)))
            .with_values(fmt::format("at most {}", max_rank), fmt::format("{}", here.size() + dimensions.size()));
      for (std::size_t c = here.size(); c-- > 0;)
        dimensions.insert(dimensions.begin(), std::vector<index_term>{{index_factor{here[c], false}, {}}});
    }
    return {};
  };
  for (const auto* side : {&made.index.left, &made.index.right})
    for (const index_tensor& tensor : *side) SHARDMESH_TRY(check_factors(rule, tensor, made.shared));
  SHARDMESH_TRY(stack(rule.left, made.index.left, made.left_stacked));
  SHARDMESH_TRY(stack(rule.right, made.index.right, made.right_stacked));
  return made;
}

}  // namespace shardmesh
