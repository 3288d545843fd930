// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.storage;
import :rank_file_name;

namespace shardmesh {
namespace fs = places;
namespace {

constexpr std::string_view separators = "-_.";

bool is_separator(char c) {
  return separators.find(c) != std::string_view::npos;
}

// Removes a number of at most nine digits from the end of `text`, and returns it.
std::optional<std::int64_t> take_number(std::string_view& text) {
  const std::size_t last = text.find_last_not_of("0123456789");
  const std::string_view digits = text.substr(last == std::string_view::npos ? 0 : last + 1);
  std::int64_t number = 0;
  if (digits.empty() || digits.size() > 9) return std::nullopt;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  text.remove_suffix(digits.size());
  return number;
}

// Removes a word, with the separators around it, from the end of `text`.
bool take_word(std::string_view& text, std::string_view word) {
  std::string_view rest = text;
  if (!rest.empty() && is_separator(rest.back())) rest.remove_suffix(1);
  if (!rest.ends_with(word)) return false;
  rest.remove_suffix(word.size());
  if (!rest.empty() && !is_separator(rest.back())) return false;
  if (!rest.empty()) rest.remove_suffix(1);
  text = rest;
  return true;
}

}  // namespace

std::optional<rank_file_name> parse_rank_file_name(std::string_view file) {
  constexpr auto endings = std::to_array<std::string_view>({".pt", ".pth", ".bin", ".ckpt"});
  const auto ending = std::find_if(endings.begin(), endings.end(), [&](auto end) { return file.ends_with(end); });
  if (ending == endings.end()) return std::nullopt;
  std::string_view rest = file.substr(0, file.size() - ending->size());
  rank_file_name made;
  const auto rank = take_number(rest);
  if (!rank || !take_word(rest, "rank")) return std::nullopt;
  made.rank = *rank;
  std::string_view before = rest;
  if (const auto size = take_number(before); size && take_word(before, "world_size")) {
    made.world_size = *size;
    rest = before;
  }
  made.stem = rest.empty() ? "rank" : std::string(rest);
  return made;
}

result<std::vector<rank_file_group>> list_rank_files(const fs::path& folder) {
  std::map<std::pair<std::string, std::optional<std::int64_t>>, rank_file_group> groups;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    const std::string name = at->path().filename().string();
    const auto parsed = parse_rank_file_name(name);
    if (!parsed) continue;
    rank_file_group& group = groups[{parsed->stem, parsed->world_size}];
    group.stem = parsed->stem;
    group.world_size = parsed->world_size;
    const auto [known, is_new] = group.files.emplace(parsed->rank, name);
    if (!is_new)
      return fail(errc::duplicate_key,
                  fmt::format("is a file of rank {}, as is {}", parsed->rank, std::min(name, known->second)))
          .with_file((folder / std::max(name, known->second)).string());
  }
  if (code) return fs::failure(code, "cannot list", folder);
  std::vector<rank_file_group> made;
  for (auto& [key, group] : groups) made.push_back(std::move(group));
  return made;
}

}  // namespace shardmesh
