// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.core;

namespace shardmesh {
namespace {

// Length of the well-formed UTF-8 sequence at the front of `text`; 0 when there is none (Unicode table 3-7).
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto continues = [&](std::size_t i, unsigned char low = 0x80, unsigned char high = 0xBF) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const unsigned char low = lead == 0xE0 ? 0xA0 : 0x80;
    const unsigned char high = lead == 0xED ? 0x9F : 0xBF;
    return continues(1, low, high) && continues(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const unsigned char low = lead == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = lead == 0xF4 ? 0x8F : 0xBF;
    return continues(1, low, high) && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

// Returns whether `text` begins with a surrogate as Python's surrogatepass encodes it.
bool begins_surrogate(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  return text.size() >= 3 && byte(0) == 0xED && byte(1) >= 0xA0 && byte(1) <= 0xBF && byte(2) >= 0x80 &&
         byte(2) <= 0xBF;
}

// The length of the ASCII text at the front, in whole words of eight bytes: most texts are nothing else.
std::size_t ascii_words(std::string_view text) {
  std::size_t at = 0;
  for (std::uint64_t word = 0; text.size() - at >= sizeof word; at += sizeof word) {
    std::memcpy(&word, text.data() + at, sizeof word);
    if ((word & 0x8080808080808080U) != 0) break;
  }
  return at;
}

// The code point of a well-formed sequence.
char32_t code_point(std::string_view sequence) {
  constexpr std::array<unsigned, 5> lead_bits{0, 0x7F, 0x1F, 0x0F, 0x07};
  char32_t code = static_cast<unsigned char>(sequence[0]) & lead_bits[sequence.size()];
  for (const char c : sequence.substr(1)) code = code << 6 | (static_cast<unsigned char>(c) & 0x3F);
  return code;
}

struct code_range {
  char32_t first, last;
};

// Characters that a terminal obeys or does not show, with which a name could imitate another or reorder the line. These
// are controls (Cc), format characters (Cf), line and paragraph separators, noncharacters, and all characters with
// Unicode's Default_Ignorable_Code_Point (zero-width, bidirectional, variation selectors, tags). Ascending, from
// Unicode 16.
constexpr auto hidden_ranges = std::to_array<code_range>({
    {0x0000, 0x001F},   {0x007F, 0x009F},   {0x00AD, 0x00AD},   {0x034F, 0x034F},   {0x0600, 0x0605},
    {0x061C, 0x061C},   {0x06DD, 0x06DD},   {0x070F, 0x070F},   {0x0890, 0x0891},   {0x08E2, 0x08E2},
    {0x115F, 0x1160},   {0x17B4, 0x17B5},   {0x180B, 0x180F},   {0x200B, 0x200F},   {0x2028, 0x202E},
    {0x2060, 0x206F},   {0x3164, 0x3164},   {0xFDD0, 0xFDEF},   {0xFE00, 0xFE0F},   {0xFEFF, 0xFEFF},
    {0xFFA0, 0xFFA0},   {0xFFF0, 0xFFFB},   {0xFFFE, 0xFFFF},   {0x110BD, 0x110BD}, {0x110CD, 0x110CD},
    {0x13430, 0x1343F}, {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A}, {0xE0000, 0xE0FFF},
});

bool is_hidden(char32_t code) {
  if (code < 0x7F) return code < 0x20;
  if ((code & 0xFFFE) == 0xFFFE) return true;
  const auto range = std::lower_bound(hidden_ranges.begin(), hidden_ranges.end(), code,
                                      [](const code_range& r, char32_t c) { return r.last < c; });
  return range != hidden_ranges.end() && range->first <= code;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    const std::string_view sequence = text.substr(0, length == 0 ? 1 : length);
    text.remove_prefix(sequence.size());
    if (length != 0 && !is_hidden(code_point(sequence)))
      safe += sequence;
    else if (sequence == "\n")
      safe += "\\n";
    else if (sequence == "\t")
      safe += "\\t";
    else if (sequence == "\r")
      safe += "\\r";
    else
      for (const char c : sequence)
        fmt::format_to(std::back_inserter(safe), "\\x{:02x}", static_cast<unsigned char>(c));
  }
  return safe;
}

std::string shortened(std::string_view text, std::size_t most) {
  constexpr std::string_view dots = "...";
  const auto begins_character = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  const auto characters = static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
  if (characters <= most) return std::string(text);
  if (most <= dots.size()) return std::string(dots.substr(0, most));
  const std::size_t kept = most - dots.size(), head = kept / 3;
  // Both walks stay within the text, which has more than `kept` characters.
  std::size_t head_end = 0, tail_begin = text.size();
  for (std::size_t i = 0; i < head; ++i)
    for (++head_end; !begins_character(text[head_end]);) ++head_end;
  for (std::size_t i = head; i < kept; ++i)
    for (--tail_begin; !begins_character(text[tail_begin]);) --tail_begin;
  return std::string(text.substr(0, head_end)).append(dots).append(text.substr(tail_begin));
}

std::string json_quoted(std::string_view text) {
  std::string quoted = "\"";
  quoted.reserve(text.size() + 2);
  const auto out = std::back_inserter(quoted);
  while (!text.empty()) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const std::size_t length = sequence_length(text);
    if (length == 0 && begins_surrogate(text)) {
      fmt::format_to(out, "\\u{:04x}", 0xD000 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F));
      text.remove_prefix(3);
      continue;
    }
    if (length == 0)
      fmt::format_to(out, "\\udc{:02x}", byte(0));
    else if (text[0] == '"' || text[0] == '\\')
      (quoted += '\\') += text[0];
    else if (text[0] == '\n')
      quoted += "\\n";
    else if (text[0] == '\t')
      quoted += "\\t";
    else if (const char32_t code = code_point(text.substr(0, length)); !is_hidden(code))
      quoted += text.substr(0, length);
    else if (code < 0x10000)
      fmt::format_to(out, "\\u{:04x}", static_cast<std::uint32_t>(code));
    else  // a UTF-16 surrogate pair
      fmt::format_to(out, "\\u{:04x}\\u{:04x}", 0xD7C0 + static_cast<std::uint32_t>(code >> 10),
                     0xDC00 | static_cast<std::uint32_t>(code & 0x3FF));
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return quoted + '"';
}

bool is_python_text(std::string_view text) {
  text.remove_prefix(ascii_words(text));
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    if (length == 0 && !begins_surrogate(text)) return false;
    text.remove_prefix(length == 0 ? 3 : length);
  }
  return true;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string printable_url(std::string_view url) {
  const std::size_t end = url.find("://");
  const std::string_view scheme = url.substr(0, end);
  const bool is_url =
      end != std::string_view::npos && !scheme.empty() && std::all_of(scheme.begin(), scheme.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' || c == '-' ||
               c == '.';
      });
  std::string shown(is_url ? url.substr(0, url.find('?')) : url);
  if (!is_url) return shown;
  const std::size_t host = end + 3, user = shown.substr(0, shown.find('/', host)).rfind('@');
  if (user == std::string::npos || user < host) return shown;
  // In hf://NAME@REVISION, "@" does not end user information, which has a ":" there. No NAME has one.
  if (scheme != "hf" || shown.find(':', host) < user) shown.erase(host, user + 1 - host);
  return shown;
}

std::string human_bytes(std::int64_t size_bytes) {
  constexpr std::array<const char*, 5> units{"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (size_bytes < 1024) return fmt::format("{} byte{}", size_bytes, size_bytes == 1 ? "" : "s");
  double amount = static_cast<double>(size_bytes);
  std::size_t unit = 0;
  for (amount /= 1024; amount >= 1024 && unit + 1 < units.size(); ++unit) amount /= 1024;
  return fmt::format("{:.{}f} {}", amount, amount < 10 ? 1 : 0, units[unit]);
}

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  constexpr auto units = std::to_array<std::pair<std::string_view, double>>({{"", 1},
                                                                             {"B", 1},
                                                                             {"K", 1024},
                                                                             {"KiB", 1024},
                                                                             {"KB", 1e3},
                                                                             {"M", 1048576},
                                                                             {"MiB", 1048576},
                                                                             {"MB", 1e6},
                                                                             {"G", 1073741824},
                                                                             {"GiB", 1073741824},
                                                                             {"GB", 1e9},
                                                                             {"T", 1099511627776.0},
                                                                             {"TiB", 1099511627776.0},
                                                                             {"TB", 1e12}});
  double amount = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), amount, std::chars_format::fixed);
  if (code != std::errc{} || amount < 0) return std::nullopt;
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  for (const auto& [spelling, factor] : units)
    if (spelling == unit && amount * factor < 9.2e18) return static_cast<std::int64_t>(amount * factor);
  return std::nullopt;
}

}  // namespace shardmesh
