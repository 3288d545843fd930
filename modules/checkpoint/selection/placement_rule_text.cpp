// SPDX-License-Identifier: Apache-2.0
// Placement rules from their text. Their resolution is in `placement_rules.cpp`.
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;

namespace shardmesh {

result<placement_rule> parse_placement_rule(std::string_view text) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0)
    return fail(errc::invalid_argument, fmt::format("'{}' is not a placement rule", text))
        .with_hint("write a rule as 'RE=S(0),R'");
  const std::string_view expression = text.substr(0, equals);
  placement_rule rule;
  auto pattern = key_pattern::compile(expression);
  if (!pattern) {
    error cause = std::move(pattern).error();  // "'RE': why"
    cause.message.insert(expression.size() + 2, " is not a regular expression");
    return cause;
  }
  rule.pattern = *std::move(pattern);
  SHARDMESH_TRY(rule.placements, parse_placements(text.substr(equals + 1)));
  return rule;
}

result<std::vector<placement_rule>> parse_placement_rules(std::span<const std::string_view> texts) {
  std::vector<placement_rule> rules;
  for (const std::string_view text : texts) {
    SHARDMESH_TRY(rules.emplace_back(), parse_placement_rule(text));
  }
  return rules;
}

result<std::vector<placement_rule>> parse_placement_rules(std::initializer_list<std::string_view> texts) {
  return parse_placement_rules(std::span(texts.begin(), texts.size()));
}

}  // namespace shardmesh
