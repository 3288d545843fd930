// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parse.hpp"
module shardmesh.layout;

namespace shardmesh {
namespace {

error bad_placement(std::string_view text, std::string_view why) {
  return fail(errc::invalid_argument, fmt::format("'{}' is not a placement: {}", text, why))
      .with_hint("write a placement as S(d), SS(d,k), SG(d,n:n:n), R, or P(op)");
}

// The text between the parentheses of "NAME(...)", or nothing.
std::optional<std::string_view> argument(std::string_view text, std::string_view name) {
  if (!text.starts_with(name)) return std::nullopt;
  text = parse::trim(text.substr(name.size()));
  if (text.size() < 2 || text.front() != '(' || text.back() != ')') return std::nullopt;
  return parse::trim(text.substr(1, text.size() - 2));
}

result<std::int32_t> parse_dim(std::string_view whole, std::string_view text) {
  const auto dim = parse::integer(text);
  if (!dim) return bad_placement(whole, fmt::format("'{}' is not a dimension", text));
  const auto limit = static_cast<std::int64_t>(max_rank);
  if (*dim >= limit || *dim < -limit)
    return bad_placement(whole, fmt::format("dimension {} is beyond the {} that tensors can have", *dim, limit));
  return static_cast<std::int32_t>(*dim);
}

// Parses the arguments of "SG(d,n:n:n)".
result<placement> parse_segments(std::string_view whole, std::string_view arguments) {
  const std::size_t comma = arguments.find(',');
  if (comma == std::string_view::npos)
    return bad_placement(whole, "SG takes a dimension and the sizes of its segments");
  auto dim = parse_dim(whole, parse::trim(arguments.substr(0, comma)));
  if (!dim) return std::move(dim).error();
  std::vector<std::int64_t> sizes;
  for (std::string_view rest = arguments.substr(comma + 1);;) {
    const std::size_t colon = rest.find(':');
    const std::string_view one = parse::trim(rest.substr(0, colon));
    const auto size = parse::integer(one);
    if (!size || *size < 0)
      return bad_placement(whole, fmt::format("the size of a segment must be a number of at least 0, not '{}'", one));
    if (sizes.size() == static_cast<std::size_t>(placement::max_segments))
      return bad_placement(whole, fmt::format("it has more than {} segments", placement::max_segments));
    sizes.push_back(*size);
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  return placement::shard_segments(*dim, sizes);
}

result<placement> parse_placement(std::string_view text) {
  text = parse::trim(text);
  if (text == "R" || text == "r") return placement::replicate();
  if (text == "P") return placement::partial(reduce_op::sum);
  if (const auto op_text = argument(text, "P")) {
    const auto op = parse_reduce_op(*op_text);
    if (!op) return bad_placement(text, fmt::format("'{}' is not a reduction", *op_text));
    return placement::partial(*op);
  }
  if (const auto arguments = argument(text, "SS")) {
    const std::size_t comma = arguments->find(',');
    if (comma == std::string_view::npos) return bad_placement(text, "SS takes a dimension and a split factor");
    auto dim = parse_dim(text, parse::trim(arguments->substr(0, comma)));
    if (!dim) return std::move(dim).error();
    const auto factor = parse::integer(parse::trim(arguments->substr(comma + 1)));
    if (!factor || *factor < 1) return bad_placement(text, "the split factor must be a number of at least 1");
    return placement::strided_shard(*dim, *factor);
  }
  if (const auto arguments = argument(text, "SG")) return parse_segments(text, *arguments);
  if (const auto dim_text = argument(text, "S")) {
    auto dim = parse_dim(text, *dim_text);
    if (!dim) return std::move(dim).error();
    return placement::shard(*dim);
  }
  return bad_placement(text, text.empty() ? "it is empty" : "unknown name or missing parentheses");
}

std::string segments_text(const placement& p) {
  std::string text;
  for (const std::int64_t size : p.segments()) {
    if (!text.empty()) text += ':';
    text += std::to_string(size);
  }
  return p.segment_count > placement::max_segments ? text + ":..." : text;
}

}  // namespace

std::string to_string(const placement& p) {
  switch (p.kind) {
    case placement_kind::replicate:
      return "R";
    case placement_kind::shard:
      return fmt::format("S({})", p.dim);
    case placement_kind::strided_shard:
      return fmt::format("SS({},{})", p.dim, p.split_factor);
    case placement_kind::partial:
      return fmt::format("P({})", to_string(p.reduction));
    case placement_kind::shard_segments:
      return fmt::format("SG({},{})", p.dim, segments_text(p));
  }
  return "?";
}

std::string to_string(const std::vector<placement>& placements) {
  std::string text;
  for (const placement& p : placements) text += (text.empty() ? "" : ", ") + to_string(p);
  return text;
}

result<std::vector<placement>> parse_placements(std::string_view text) {
  std::vector<placement> placements;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    if (c == '(') ++depth;
    if (c == ')') --depth;
    if (i < text.size() && (c != ',' || depth > 0)) continue;
    auto one = parse_placement(text.substr(begin, i - begin));
    if (!one) return std::move(one).error();
    if (placements.size() == max_rank)
      return fail(errc::rank_too_large, fmt::format("'{}' has more than {} placements", text, max_rank));
    placements.push_back(*one);
    begin = i + 1;
  }
  return placements;
}

}  // namespace shardmesh
