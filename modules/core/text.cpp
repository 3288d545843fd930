// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.core;

namespace shardmesh {
namespace {

// Length of the well-formed UTF-8 sequence at the front of `text`, 0 when there is none (Unicode table 3-7).
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

}  // namespace

std::string escaped(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  while (!text.empty()) {
    const auto lead = static_cast<unsigned char>(text.front());
    const std::size_t length = sequence_length(text);
    // U+0080..U+009F are control characters too (C1: CSI is 0x9B).
    const bool control =
        lead < 0x20 || lead == 0x7F || (lead == 0xC2 && length == 2 && static_cast<unsigned char>(text[1]) < 0xA0);
    if (length != 0 && !control) {
      safe += text.substr(0, length);
      text.remove_prefix(length);
      continue;
    }
    if (lead == '\n')
      safe += "\\n";
    else if (lead == '\t')
      safe += "\\t";
    else if (lead == '\r')
      safe += "\\r";
    else
      fmt::format_to(std::back_inserter(safe), "\\x{:02x}", lead);
    text.remove_prefix(1);
  }
  return safe;
}

std::string json_quoted(std::string_view text) {
  std::string quoted = "\"";
  quoted.reserve(text.size() + 2);
  const auto out = std::back_inserter(quoted);
  while (!text.empty()) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const std::size_t length = sequence_length(text);
    const bool surrogate = length == 0 && byte(0) == 0xED && text.size() >= 3 && byte(1) >= 0xA0 && byte(1) <= 0xBF &&
                           byte(2) >= 0x80 && byte(2) <= 0xBF;
    if (surrogate) {  // as Python's surrogatepass encodes one
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
    else if (byte(0) < 0x20 || byte(0) == 0x7F)
      fmt::format_to(out, "\\u{:04x}", byte(0));
    else
      quoted += text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return quoted + '"';
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string human_bytes(std::int64_t size_bytes) {
  constexpr std::array<const char*, 5> units{"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (size_bytes < 1024) return fmt::format("{} bytes", size_bytes);
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
