// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>

#include "parse.hpp"
module shardmesh.layout;

namespace shardmesh {
namespace {

result<std::vector<std::int64_t>> running_sums(std::vector<std::int64_t> values, std::string_view what) {
  if (values.empty())
    return fail(errc::invalid_argument, fmt::format("a split rule needs at least one of its {}", what));
  std::int64_t sum = 0;
  for (std::int64_t& value : values) {
    if (value < 0)
      return fail(errc::invalid_argument, fmt::format("the {} of a split rule cannot be negative", what))
          .with_values("", std::to_string(value));
    const auto next = checked_add(sum, value);
    if (!next) return fail(errc::overflow, fmt::format("the sum of the {} does not fit in 64 bits", what));
    value = sum = *next;
  }
  return values;
}

}  // namespace

result<split_rule> split_rule::explicit_sizes(std::vector<std::int64_t> sizes) {
  split_rule rule(split_policy::explicit_sizes);
  SHARDMESH_TRY(rule.ends_, running_sums(std::move(sizes), "sizes"));
  return rule;
}

result<split_rule> split_rule::weighted(std::vector<std::int64_t> weights) {
  split_rule rule(split_policy::weighted);
  SHARDMESH_TRY(rule.ends_, running_sums(std::move(weights), "weights"));
  if (rule.ends_.back() == 0) return fail(errc::invalid_argument, "all weights of a split rule are 0");
  return rule;
}

std::string to_string(const split_rule& rule) {
  if (rule.policy() == split_policy::torch_chunk) return "torch_chunk";
  if (rule.policy() == split_policy::balanced) return "balanced";
  std::string text = rule.policy() == split_policy::weighted ? "weights:" : "sizes:";
  std::int64_t previous = 0;
  for (const std::int64_t end : rule.ends()) {
    if (text.back() != ':') text += ',';
    text += std::to_string(end - previous);
    previous = end;
  }
  return text;
}

result<split_rule> parse_split_rule(std::string_view text) {
  const std::string_view whole = text = parse::trim(text);
  if (text == "torch_chunk") return split_rule::torch_chunk();
  if (text == "balanced") return split_rule::balanced();
  const bool sizes = text.starts_with("sizes:");
  if (!sizes && !text.starts_with("weights:"))
    return fail(errc::invalid_argument, fmt::format("'{}' is not a split rule", whole))
        .with_hint("write a split rule as torch_chunk, balanced, sizes:3,3,4, or weights:1,2");
  text.remove_prefix(text.find(':') + 1);
  std::vector<std::int64_t> values;
  while (true) {
    const std::size_t comma = text.find(',');
    const auto value = parse::integer(parse::trim(text.substr(0, comma)));
    if (!value)
      return fail(errc::invalid_argument,
                  fmt::format("'{}' in split rule '{}' is not a number", text.substr(0, comma), whole));
    values.push_back(*value);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return sizes ? split_rule::explicit_sizes(std::move(values)) : split_rule::weighted(std::move(values));
}

}  // namespace shardmesh
