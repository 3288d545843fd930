// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;

namespace shardmesh {
namespace {

// Names that other tools use. They are suggested, never accepted: "fp8" does not say which FP8.
constexpr auto other_names = std::to_array<std::pair<std::string_view, dtype>>({
    {"bf16", dtype::bfloat16},
    {"bfloat", dtype::bfloat16},
    {"brain", dtype::bfloat16},
    {"fp16", dtype::float16},
    {"f16", dtype::float16},
    {"fp32", dtype::float32},
    {"f32", dtype::float32},
    {"single", dtype::float32},
    {"fp64", dtype::float64},
    {"f64", dtype::float64},
    {"fp8", dtype::float8_e4m3fn},
    {"float8", dtype::float8_e4m3fn},
    {"f8_e4m3", dtype::float8_e4m3fn},
    {"f8_e5m2", dtype::float8_e5m2},
    {"e4m3", dtype::float8_e4m3fn},
    {"e5m2", dtype::float8_e5m2},
    {"i8", dtype::int8},
    {"i16", dtype::int16},
    {"i32", dtype::int32},
    {"i64", dtype::int64},
    {"u8", dtype::uint8},
    {"u16", dtype::uint16},
    {"u32", dtype::uint32},
    {"u64", dtype::uint64},
    {"byte", dtype::uint8},
    {"char", dtype::int8},
    {"c64", dtype::complex64},
    {"c128", dtype::complex128},
});

std::string lower(std::string_view text) {
  std::string made(text);
  for (char& c : made)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return made;
}

result<dtype> dtype_called(std::string_view spelled, std::string_view rule) {
  if (spelled.empty()) return fail(errc::invalid_argument, fmt::format("'{}': the name of a dtype is missing", rule));
  const auto type = parse_dtype(spelled);
  if (type && *type != dtype::undefined) return *type;
  error unknown = fail(errc::invalid_argument, fmt::format("'{}': no dtype is called {}", rule, spelled));
  if (const auto near = nearest_dtype(spelled)) unknown.hint = did_you_mean(name(*near));
  return unknown;
}

}  // namespace

std::optional<dtype> nearest_dtype(std::string_view text) {
  if (text.starts_with("torch.")) text.remove_prefix(6);
  const std::string spelled = lower(text);
  if (const auto exact = parse_dtype(spelled)) return exact;
  for (const auto& [other, type] : other_names)
    if (other == spelled) return type;
  std::vector<std::string_view> names{"half", "float", "double", "long", "int", "short"};
  for (const dtype type : all_dtypes()) names.push_back(name(type));
  const auto near = nearest_key(names, spelled);
  return near ? parse_dtype(*near) : std::nullopt;
}

result<cast_rule> parse_cast_rule(std::string_view text) {
  const std::size_t equals = text.rfind('=');
  const bool has_pattern = equals != std::string_view::npos;
  const std::string_view types = has_pattern ? text.substr(equals + 1) : text;
  const std::size_t colon = types.find(':');
  cast_rule rule;
  rule.text = text;
  SHARDMESH_TRY(rule.type, dtype_called(colon == std::string_view::npos ? types : types.substr(colon + 1), text));
  if (colon != std::string_view::npos) {
    SHARDMESH_TRY(rule.from, dtype_called(types.substr(0, colon), text));
  }
  if (has_pattern) {
    SHARDMESH_TRY(rule.what, key_pattern::compile(text.substr(0, equals)));
  }
  return rule;
}

std::string to_string(const cast_rule& rule) {
  if (!rule.text.empty()) return rule.text;
  return fmt::format("{}{}{}{}{}", rule.what ? rule.what->text() : "", rule.what ? "=" : "",
                     rule.from ? name(*rule.from) : "", rule.from ? ":" : "", name(rule.type));
}

}  // namespace shardmesh
