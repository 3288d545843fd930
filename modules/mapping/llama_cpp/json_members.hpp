// SPDX-License-Identifier: Apache-2.0
// Members of JSON objects that may lack them, or have them with values of another kind. Only .cpp files include it.
#pragma once
#include <nlohmann/json.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace shardmesh::detail {

/// Returns a member; null if `from` is no object, or lacks it.
inline const nlohmann::json* member_of(const nlohmann::json& from, std::string_view name) {
  if (!from.is_object()) return nullptr;
  const auto found = from.find(std::string(name));
  return found == from.end() ? nullptr : &*found;
}

/// Returns an integer of 64 bits with a sign; nothing for any other value.
inline std::optional<std::int64_t> integer_in(const nlohmann::json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  return std::nullopt;
}

/// Returns a member that is a number of any kind.
inline std::optional<double> number_member(const nlohmann::json& from, std::string_view name) {
  const nlohmann::json* const found = member_of(from, name);
  return found != nullptr && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

/// Returns a member that is a text; null otherwise.
inline const std::string* text_member(const nlohmann::json& from, std::string_view name) {
  const nlohmann::json* const found = member_of(from, name);
  return found == nullptr ? nullptr : found->get_ptr<const std::string*>();
}

/// Returns a member that is true or false; nothing otherwise.
inline std::optional<bool> flag_member(const nlohmann::json& from, std::string_view name) {
  const nlohmann::json* const found = member_of(from, name);
  return found != nullptr && found->is_boolean() ? std::optional(found->get<bool>()) : std::nullopt;
}

}  // namespace shardmesh::detail
