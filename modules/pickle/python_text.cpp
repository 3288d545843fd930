// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
module shardmesh.pickle;

import :python_text;

namespace shardmesh::pickle {
namespace {

// Keys are names. Longer or deeper values are not names, and the text of a small hostile tuple could grow without end.
constexpr std::size_t most_characters = 4096;
constexpr int deepest = 16;

// Python's str(float): the shortest digits that round-trip, with an exponent below 1e-4 and from 1e16 on.
std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> text;
  const auto plain = std::to_chars(text.begin(), text.end(), value, std::chars_format::scientific);
  std::string scientific(text.begin(), plain.ptr);
  const int exponent = std::atoi(scientific.substr(scientific.find('e') + 1).c_str());
  if (exponent < -4 || exponent >= 16) return scientific;
  const auto fixed = std::to_chars(text.begin(), text.end(), value, std::chars_format::fixed);
  std::string out(text.begin(), fixed.ptr);
  return out.find('.') == std::string::npos ? out + ".0" : out;
}

// Quotes and escapes text as Python's repr does. Characters beyond ASCII stay unless `is_bytes` is set.
std::string quoted(std::string_view text, bool is_bytes) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out = is_bytes ? "b" : "";
  out += quote;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '\\' || c == quote)
      out += '\\', out += c;
    else if (c == '\n' || c == '\r' || c == '\t')
      out += '\\', out += c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
    else if (code < 0x20 || code == 0x7f || (is_bytes && code >= 0x80))
      out += fmt::format("\\x{:02x}", code);
    else
      out += c;
  }
  return out + quote;
}

class representation {
 public:
  // Appends repr(value) to `out`. Returns false when it is unsupported or too long.
  bool add(const pickle::value& value, int depth) {
    if (depth > deepest || out.size() > most_characters) return false;
    if (const auto bytes = value.kind() == kind::bytearray ? std::nullopt : bytes_of(value))
      return is_short(*bytes) && append(quoted(*bytes, true));
    switch (value.kind()) {
      case kind::text:
        return is_short(*value.text()) && append(quoted(*value.text(), false));
      case kind::integer: {
        const auto digits = value.decimal();
        return digits && append(*digits);
      }
      case kind::boolean:
        return append(*value.as_bool() ? "True" : "False");
      case kind::none:
        return append("None");
      case kind::floating:
        return append(python_float(*value.as_float()));
      case kind::tuple:
        return add_all("(", value.items(), value.size() == 1 ? ",)" : ")", depth);
      case kind::global:
        return value.global_module() == "torch" && parse_dtype(value.global_name()) &&
               append(fmt::format("torch.{}", value.global_name()));
      case kind::record:
        return add_record(value, depth);
      default:
        return false;
    }
  }

  std::string out;

 private:
  static bool is_short(std::string_view text) { return text.size() <= most_characters; }

  bool append(std::string_view text) {
    out += text;
    return out.size() <= most_characters;
  }

  bool add_all(std::string_view begin, const pickle::items& items, std::string_view end, int depth) {
    out += begin;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += ", ";
      if (!add(items[i], depth + 1)) return false;
    }
    return append(end);
  }

  bool add_record(const pickle::value& value, int depth) {
    const items args = value.args().items();
    if (value.is_record_of("torch", "Size") && args.size() == 1)
      return add_all("torch.Size([", args[0].items(), "])", depth);
    if (value.is_record_of("torch", "device") && !args.empty() && args[0].text()) {
      const auto index = args.size() > 1 ? args[1].as_int() : std::nullopt;
      return append(fmt::format("device(type={}{})", quoted(*args[0].text(), false),
                                index ? fmt::format(", index={}", *index) : ""));
    }
    return false;
  }
};

}  // namespace

std::optional<std::string> python_str(const pickle::value& value) {
  if (const auto text = value.text()) return std::string(*text);
  const items args = value.args().items();
  if (value.is_record_of("torch", "device") && !args.empty() && args[0].text()) {
    const auto index = args.size() > 1 ? args[1].as_int() : std::nullopt;
    return fmt::format("{}{}", *args[0].text(), index ? fmt::format(":{}", *index) : "");
  }
  representation made;
  if (!made.add(value, 0)) return std::nullopt;
  return std::move(made.out);
}

}  // namespace shardmesh::pickle
