// SPDX-License-Identifier: Apache-2.0
// Numpy arrays and scalars as JSON.
module;
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
module shardmesh.torch_file;

import :numpy_code;
import :numpy_value;

namespace shardmesh::torch_file {
namespace {

constexpr std::size_t most_shown = 64;

std::uint64_t number_at(const numpy_code& code, std::string_view element) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < element.size() && i < 8; ++i) {
    const std::size_t from = code.order == '>' ? i : element.size() - 1 - i;
    number = number << 8 | static_cast<unsigned char>(element[from]);
  }
  return number;
}

double float_of(std::uint64_t bits, std::size_t width) {
  if (width == 8) return std::bit_cast<double>(bits);
  if (width == 4) return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  const std::uint64_t exponent = bits >> 10 & 31, mantissa = bits & 1023, sign = bits >> 15 & 1;
  // Widens a half to a double: the exponent's bias changes, and subnormal numbers are multiples of 2^-24.
  if (exponent == 0) return (sign ? -1.0 : 1.0) * static_cast<double>(mantissa) * 0x1p-24;
  const std::uint64_t wide = exponent == 31 ? 2047 : exponent + 1008;
  return std::bit_cast<double>(sign << 63 | wide << 52 | mantissa << 42);
}

std::string float_json(std::uint64_t bits, std::size_t width) {
  return fmt::format("{{\"$float\":\"{}\"}}", float_hex(float_of(bits, width)));
}

// Converts UCS-4 code points to UTF-8, up to the first zero. Surrogates and invalid code points become "?".
std::string utf8_of(const numpy_code& code, std::string_view element) {
  std::string out;
  for (std::size_t i = 0; i + 4 <= element.size(); i += 4) {
    const auto point = static_cast<std::uint32_t>(number_at(code, element.substr(i, 4)));
    if (point == 0) break;
    if (point < 0x80) {
      out += static_cast<char>(point);
    } else if (point < 0x800) {
      out += {static_cast<char>(0xc0 | point >> 6), static_cast<char>(0x80 | (point & 63))};
    } else if (point < 0x10000 && (point < 0xd800 || point > 0xdfff)) {
      out += {static_cast<char>(0xe0 | point >> 12), static_cast<char>(0x80 | (point >> 6 & 63)),
              static_cast<char>(0x80 | (point & 63))};
    } else if (point >= 0x10000 && point < 0x110000) {
      out += {static_cast<char>(0xf0 | point >> 18), static_cast<char>(0x80 | (point >> 12 & 63)),
              static_cast<char>(0x80 | (point >> 6 & 63)), static_cast<char>(0x80 | (point & 63))};
    } else {
      out += '?';
    }
  }
  return out;
}

std::string element_json(const numpy_code& code, std::string_view element) {
  const std::uint64_t bits = number_at(code, element);
  const auto shift = static_cast<int>(64 - 8 * element.size());
  switch (code.kind) {
    case 'b':
      return bits != 0 ? "true" : "false";
    case 'u':
      return bits < std::uint64_t{1} << 53 ? std::to_string(bits) : fmt::format("{{\"$int\":\"{}\"}}", bits);
    case 'i':
    case 'M':
    case 'm': {
      const std::int64_t number = static_cast<std::int64_t>(bits << shift) >> shift;
      const bool is_plain = number > -(std::int64_t{1} << 53) && number < std::int64_t{1} << 53;
      return is_plain ? std::to_string(number) : fmt::format("{{\"$int\":\"{}\"}}", number);
    }
    case 'f':
      return float_json(bits, element.size());
    case 'c': {
      const std::size_t half = element.size() / 2;
      const auto part = [&](std::size_t begin) {
        return json_quoted(float_hex(float_of(number_at(code, element.substr(begin, half)), half)));
      };
      return fmt::format("{{\"$complex\":[{},{}]}}", part(0), part(half));
    }
    case 'U':
      return json_quoted(utf8_of(code, element));
    default:
      return fmt::format("{{\"$bytes\":\"{}\"}}", hex_digits(element.substr(0, element.find_last_not_of('\0') + 1)));
  }
}

}  // namespace

std::string numpy_members(const numpy_value& value) {
  const auto code = parse_numpy_code(value.dtype);
  const auto item = static_cast<std::size_t>(code ? code->item_bytes : 0);
  std::string text = fmt::format("\"dtype\":{}", json_quoted(value.dtype));
  if (!value.is_scalar) text += fmt::format(",\"shape\":[{}]", fmt::join(value.shape, ","));
  if (item > 0 && value.data.size() / item <= most_shown) {
    text += value.is_scalar ? ",\"value\":" : ",\"values\":[";
    for (std::size_t begin = 0; begin < value.data.size(); begin += item)
      text += (begin > 0 ? "," : "") + element_json(*code, std::string_view(value.data).substr(begin, item));
    if (!value.is_scalar) text += ']';
  }
  return text + ",\"data\":\"" + hex_digits(value.data) + "\"";
}

}  // namespace shardmesh::torch_file
