// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
module shardmesh.tree;

namespace shardmesh {
namespace {

bool is_plain(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return !name.empty() && letter(name.front()) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || digit(c); });
}

}  // namespace

std::string to_string(const path& p) {
  std::string text;
  for (const path_key& key : p) {
    if (key.is_index()) {
      text += "[" + std::to_string(key.index()) + "]";
    } else if (is_plain(key.name())) {
      text += (text.empty() ? "" : ".") + key.name();
    } else {
      text += "[\"";
      for (const char c : key.name()) {
        if (c == '"' || c == '\\') text += '\\';
        text += c;
      }
      text += "\"]";
    }
  }
  return text;
}

std::string dotted(const path& p) {
  std::string text;
  bool first = true;
  for (const path_key& key : p) {
    if (!first) text += '.';
    first = false;
    text += key.is_index() ? std::to_string(key.index()) : key.name();
  }
  return text;
}

std::size_t hash_value(const path& p) {
  std::size_t hash = p.size();
  for (const path_key& key : p) {
    const std::size_t one = key.is_index() ? std::hash<std::int64_t>{}(key.index()) ^ 0x9e3779b97f4a7c15ULL
                                           : std::hash<std::string>{}(key.name());
    hash ^= one + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
  }
  return hash;
}

}  // namespace shardmesh
