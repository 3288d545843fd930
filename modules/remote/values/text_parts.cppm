// SPDX-License-Identifier: Apache-2.0
// Not exported: parts of ASCII text. The functions of <cctype> depend on the locale.
module shardmesh.remote:text_parts;

import shardmesh.std;

namespace shardmesh::remote {

inline bool is_blank(char c) noexcept {
  return c == ' ' || c == '\t';
}
inline bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}
inline bool is_alphanumeric(char c) noexcept {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
inline bool is_control(char c) noexcept {
  return (c >= '\0' && c < ' ') || c == '\x7f';
}

// Returns whether a text can be a region, which becomes a part of hosts: 1 to 63 letters, digits, and '-'.
bool is_region(std::string_view text) noexcept;
// Returns the text without spaces, tabs, and line breaks at both ends.
std::string_view trimmed(std::string_view text) noexcept;
// Returns the text with ASCII letters in lower case.
std::string lower(std::string_view text);
// Returns the text with "***" in the place of each secret. Empty secrets count for nothing.
std::string without_secrets(std::string text, std::span<const std::string_view> secrets);
// Returns the bytes of a text.
std::span<const std::byte> bytes_of(std::string_view text) noexcept;

}  // namespace shardmesh::remote
