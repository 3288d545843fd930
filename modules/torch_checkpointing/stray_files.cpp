// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.torch_checkpointing;

import :stray_files;

namespace shardmesh::torch_checkpointing {
namespace fs = places;
namespace {

// Parses "step_12.pt" into item "step" and rank 12.
std::optional<std::pair<std::string, std::int32_t>> item_and_rank(std::string_view name) {
  if (!name.ends_with(".pt")) return std::nullopt;
  name.remove_suffix(3);
  const std::size_t line = name.rfind('_');
  if (line == std::string_view::npos || line == 0) return std::nullopt;
  const std::string_view digits = name.substr(line + 1);
  std::int32_t rank = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  const bool is_number = !digits.empty() && code == std::errc() && end == digits.data() + digits.size() &&
                         digits[0] != '-' && (digits[0] != '0' || digits.size() == 1);
  if (!is_number) return std::nullopt;
  return std::pair(std::string(name.substr(0, line)), rank);
}

}  // namespace

result<stray_files> find_strays(const fs::path& folder, const metadata& described) {
  std::set<std::string, std::less<>> known{std::string(metadata_file_name)};
  for (const item_metadata& item : described.items)
    for (const rank_file& file : item.files) known.insert(file.name);
  stray_files found;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    const std::string name = at->path().filename().string();
    std::error_code ignored;
    if (name.starts_with('.') || known.contains(name) || !at->is_regular_file(ignored)) continue;
    if (const auto stray = item_and_rank(name))
      found.items[stray->first].emplace(stray->second, name);
    else
      found.unread.push_back(name);
  }
  if (code) return fs::failure(code, "cannot list", folder);
  std::sort(found.unread.begin(), found.unread.end());
  return found;
}

}  // namespace shardmesh::torch_checkpointing
