// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.checkpoint_core;

import :file_texts;

namespace shardmesh {

bool is_carried_text(std::string_view key) {
  return !key.starts_with("shardmesh.") && key != "DCP_SHARDING_INFO" && key != "DCP_VERSION";
}

std::string text_merge::name_of(std::int32_t file) const {
  return file < 0 ? std::string("the checkpoint") : from_.files[static_cast<std::size_t>(file)];
}

std::vector<std::pair<std::string, std::string>> text_merge::of(const std::set<std::int32_t>& contributors) {
  std::vector<std::pair<std::string, std::string>> merged;
  std::unordered_map<std::string_view, std::string_view> taken;
  for (const file_text& text : from_.texts) {
    if (text.file >= 0 && !contributors.contains(text.file)) continue;
    if (!is_carried_text(text.key)) continue;  // GGUF files and DCP may hold one, which would describe another file
    const auto [first, is_new] = taken.try_emplace(text.key, text.value);
    if (is_new)
      merged.emplace_back(text.key, text.value);
    else if (first->second != text.value)
      conflicts_[text.key].insert(name_of(text.file));
  }
  return merged;
}

std::vector<std::pair<std::string, std::string>> text_merge::of_all() {
  std::set<std::int32_t> files;
  for (const file_text& text : from_.texts) files.insert(text.file);
  return of(files);
}

std::vector<std::string> text_merge::notes() const {
  std::vector<std::string> lines;
  for (const auto& [key, files] : conflicts_)
    lines.push_back(
        fmt::format("files of the source differ in the metadata '{}': the first value is kept, not that of {}{}", key,
                    *files.begin(), files.size() > 1 ? fmt::format(" and {} more", files.size() - 1) : std::string()));
  return lines;
}

}  // namespace shardmesh
