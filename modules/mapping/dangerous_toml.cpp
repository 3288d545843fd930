// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.mapping;

import :dangerous_toml;

namespace shardmesh {
namespace {

// Dots of one key. toml++ makes a table for each, and deletes nested tables recursively.
constexpr int most_dots = 16;

// A text that toml++ must not see: the line, and what is wrong.
struct dangerous_text {
  int line = 0;
  std::string_view problem;
};

constexpr std::string_view deep_key = "a key has too many parts";
// Also in TOML an error. toml++ 3.3 takes some of these characters to a place that its author declared unreachable.
constexpr std::string_view not_ascii = "a character that is not ASCII is outside of a string or comment";

// Finds the first key with more than `most_dots` dots, and the first character that is not ASCII, outside of strings
// and comments or after a backslash. It skips strings and comments of valid TOML; toml++ stops at the first text that
// is not valid.
std::optional<dangerous_text> find_danger(std::string_view text) {
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  int line = 1, dots = 0;
  for (std::size_t i = text.starts_with("\xEF\xBB\xBF") ? 3 : 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' || c == '\'') {
      const std::string multiline(3, c);
      const bool is_multiline = text.substr(i).starts_with(multiline);
      for (i += is_multiline ? 3 : 1; i < text.size(); ++i) {
        if (text[i] == '\n') ++line;
        if (text[i] == '\n' && !is_multiline) break;
        if (text[i] == '\\' && c == '"') {
          if (++i < text.size() && text[i] == '\n') ++line;
          if (i < text.size() && !is_ascii(text[i])) return dangerous_text{line, not_ascii};
        } else if (is_multiline && text.substr(i).starts_with(multiline)) {
          i += 2;
          for (int more = 0; more < 2 && i + 1 < text.size() && text[i + 1] == c; ++more) ++i;  // `""""` ends with `"`
          break;
        } else if (!is_multiline && text[i] == c) {
          break;
        }
      }
    } else if (c == '#') {
      while (i + 1 < text.size() && text[i + 1] != '\n') ++i;
    } else if (c == '.') {
      if (++dots > most_dots) return dangerous_text{line, deep_key};
    } else if (c == '\n') {
      ++line;
      dots = 0;
    } else if (c == '=' || c == ',' || c == '[' || c == ']' || c == '{' || c == '}') {
      dots = 0;
    } else if (!is_ascii(c)) {
      return dangerous_text{line, not_ascii};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<error> find_dangerous_toml(std::string_view text) {
  const auto danger = find_danger(text);
  if (!danger) return std::nullopt;
  error why = fail(errc::bad_format, fmt::format("line {}: {}", danger->line, danger->problem));
  if (danger->problem != deep_key) return why;
  return std::move(why).with_values(fmt::format("at most {} dots", most_dots), "more");
}

}  // namespace shardmesh
