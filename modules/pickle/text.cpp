// SPDX-License-Identifier: Apache-2.0
module;
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
module shardmesh.pickle;

import :text;

namespace shardmesh::pickle {
namespace {

void append_utf8(std::string& out, std::uint32_t code) {
  const auto put = [&out](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800) return put(0xc0 | code >> 6), put(0x80 | (code & 63));
  if (code < 0x10000) return put(0xe0 | code >> 12), put(0x80 | (code >> 6 & 63)), put(0x80 | (code & 63));
  put(0xf0 | code >> 18), put(0x80 | (code >> 12 & 63)), put(0x80 | (code >> 6 & 63)), put(0x80 | (code & 63));
}

/// Reads `count` hexadecimal digits at the start of `text`; returns -1 when they are malformed.
std::int64_t hex_number(std::string_view text, std::size_t count) {
  std::uint32_t number = 0;
  if (text.size() < count) return -1;
  const auto [end, status] = std::from_chars(text.data(), text.data() + count, number, 16);
  return status == std::errc{} && end == text.data() + count ? static_cast<std::int64_t>(number) : -1;
}

}  // namespace

bool decode_raw_unicode(std::string_view line, std::string& out) {
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    const char next = i + 1 < line.size() ? line[i + 1] : '\0';
    if (c != '\\' || (next != 'u' && next != 'U')) {
      append_utf8(out, static_cast<unsigned char>(c));
      // A backslash before any other character stands for itself, and so does that character.
      if (c == '\\' && i + 1 < line.size()) append_utf8(out, static_cast<unsigned char>(line[++i]));
      continue;
    }
    const std::size_t digits = next == 'u' ? 4 : 8;
    const std::int64_t code = hex_number(line.substr(i + 2), digits);
    if (code < 0 || code > 0x10ffff) return false;
    append_utf8(out, static_cast<std::uint32_t>(code));
    i += 1 + digits;
  }
  return true;
}

bool decode_string_repr(std::string_view line, std::string& out) {
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
  if (line.size() < 2 || line.front() != line.back() || (line[0] != '\'' && line[0] != '"')) return false;
  line = line.substr(1, line.size() - 2);
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\') {
      out += line[i];
      continue;
    }
    if (++i == line.size()) return false;
    switch (const char c = line[i]) {
      case 'n':
        out += '\n';
        break;
      case 'r':
        out += '\r';
        break;
      case 't':
        out += '\t';
        break;
      case 'a':
        out += '\a';
        break;
      case 'b':
        out += '\b';
        break;
      case 'f':
        out += '\f';
        break;
      case 'v':
        out += '\v';
        break;
      case '\\':
      case '\'':
      case '"':
        out += c;
        break;
      case 'x': {
        const std::int64_t code = hex_number(line.substr(i + 1), 2);
        if (code < 0) return false;
        out += static_cast<char>(code);
        i += 2;
        break;
      }
      default:
        if (c >= '0' && c <= '7') {
          int code = 0, digits = 0;
          for (; digits < 3 && i + digits < line.size() && line[i + digits] >= '0' && line[i + digits] <= '7'; ++digits)
            code = code * 8 + (line[i + digits] - '0');
          out += static_cast<char>(code);
          i += static_cast<std::size_t>(digits) - 1;
        } else {
          out += '\\';
          out += c;
        }
    }
  }
  return true;
}

bool is_integer_text(std::string_view digits) {
  if (digits.starts_with('-') || digits.starts_with('+')) digits.remove_prefix(1);
  return !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace shardmesh::pickle
