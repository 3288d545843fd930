// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
module shardmesh.safetensors;

import :sharding_info;

namespace shardmesh::safetensors {

result<std::optional<saved_offsets>> read_sharding_info(const hf_file& file) {
  const auto text = find_metadata(file.header, "DCP_SHARDING_INFO");
  if (!text) return std::optional<saved_offsets>{};
  const auto bad = [&](std::string_view key, std::string message) {
    return fail(errc::bad_format, "DCP_SHARDING_INFO: " + std::move(message))
        .with_key(key)
        .with_file(file.source->name());
  };
  if (text->find('\0') != std::string_view::npos) return bad({}, "is not JSON");
  if (auto shallow = check_json_depth(*text); !shallow) return bad({}, shallow.error().message);
  const auto info = nlohmann::json::parse(*text, nullptr, false);
  if (!info.is_object()) return bad({}, "is not a JSON object");
  saved_offsets offsets;
  for (const auto& [name, value] : info.items()) {
    const auto saved = value.is_object() ? value.find("saved_offsets") : value.end();
    if (!value.is_object() || saved == value.end() || !saved->is_array()) return bad(name, "has no saved_offsets");
    if (saved->size() > max_rank)
      return fail(errc::rank_too_large, fmt::format("DCP_SHARDING_INFO: has more than {} offsets", max_rank))
          .with_key(name)
          .with_file(file.source->name());
    extents offset;
    for (const auto& number : *saved) {
      if (!number.is_number_unsigned() || number.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))
        return bad(name, "saved_offsets holds a value that is not an offset");
      offset.push_back(number.get<std::int64_t>());
    }
    offsets.emplace(name, offset);
  }
  return std::optional(std::move(offsets));
}

}  // namespace shardmesh::safetensors
