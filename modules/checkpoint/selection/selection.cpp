// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.checkpoint;

namespace shardmesh {
namespace {

// The text before the last '=' and the text after it; nothing if there is no '='.
std::optional<std::pair<std::string_view, std::string_view>> split(std::string_view text) {
  const std::size_t at = text.rfind('=');
  if (at == std::string_view::npos) return std::nullopt;
  return std::pair(text.substr(0, at), text.substr(at + 1));
}

}  // namespace

result<rename_rule> rename_rule::make(key_pattern what, std::string replacement) {
  SHARDMESH_TRY(what.check_replacement(replacement));
  rename_rule rule;
  rule.what_ = std::move(what);
  rule.replacement_ = std::move(replacement);
  return rule;
}

result<rename_rule> parse_rename_rule(std::string_view text) {
  const auto parts = split(text);
  if (!parts) return fail(errc::invalid_argument, fmt::format("'{}' is not RE=REPLACEMENT", text));
  SHARDMESH_TRY(key_pattern what, key_pattern::compile(parts->first));
  return rename_rule::make(std::move(what), std::string(parts->second));
}

}  // namespace shardmesh
