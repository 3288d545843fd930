// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
module shardmesh.remote;

import :text_parts;

namespace shardmesh::remote {

bool is_region(std::string_view text) noexcept {
  return !text.empty() && text.size() <= 63 &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_alphanumeric(c) || c == '-'; });
}

std::string_view trimmed(std::string_view text) noexcept {
  const auto is_space = [](char c) { return is_blank(c) || c == '\n' || c == '\r'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string lower(std::string_view text) {
  std::string made(text);
  for (char& c : made)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return made;
}

std::string without_secrets(std::string text, std::span<const std::string_view> secrets) {
  constexpr std::string_view shown = "***";
  for (const std::string_view one : secrets)
    for (std::size_t at = 0; !one.empty() && (at = text.find(one, at)) != std::string::npos; at += shown.size())
      text.replace(at, one.size(), shown);
  return text;
}

std::span<const std::byte> bytes_of(std::string_view text) noexcept {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace shardmesh::remote
