// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
module shardmesh.checkpoint;

import shardmesh.storage;
import :consolidated_name;

namespace shardmesh {
namespace fs = places;

std::optional<std::int64_t> parse_consolidated_name(std::string_view file) {
  constexpr std::string_view beginning = "consolidated.";
  if (!file.starts_with(beginning)) return std::nullopt;
  file.remove_prefix(beginning.size());
  if (file.ends_with(".pth"))
    file.remove_suffix(4);
  else if (file.ends_with(".pt"))
    file.remove_suffix(3);
  else
    return std::nullopt;
  const bool is_number = std::all_of(file.begin(), file.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!is_number || file.size() < 2 || file.size() > 4) return std::nullopt;
  std::int64_t number = 0;
  std::from_chars(file.data(), file.data() + file.size(), number);
  return number;
}

result<std::map<std::int64_t, std::string>> list_consolidated_files(const fs::path& folder) {
  std::map<std::int64_t, std::string> files;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    const std::string name = at->path().filename().string();
    const auto number = parse_consolidated_name(name);
    if (!number) continue;
    const auto [known, is_new] = files.emplace(*number, name);
    if (!is_new)
      return fail(errc::duplicate_key, fmt::format("has the number of {}", std::min(name, known->second)))
          .with_file((folder / std::max(name, known->second)).string());
  }
  if (code) return fs::failure(code, "cannot list", folder);
  return files;
}

}  // namespace shardmesh
