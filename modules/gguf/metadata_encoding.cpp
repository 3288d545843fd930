// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
module shardmesh.gguf;

import shardmesh.storage;
import :metadata_encoding;
import :metadata_value;

namespace shardmesh::gguf {
namespace {

using json = nlohmann::json;

// An integer as its sign and magnitude: uint64 and int64 together.
struct integer {
  bool is_negative = false;
  std::uint64_t magnitude = 0;
};
struct text {
  std::string bytes;
};
// An array is a pointer into the parsed JSON: an array of numbers may have as many elements as the file has bytes.
using value = std::variant<bool, integer, double, text, const json::array_t*>;

std::optional<std::string> bytes_of_hex(const std::string& digits) {
  if (digits.size() % 2 != 0) return std::nullopt;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    const int high = digit(digits[i]), low = digit(digits[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes += static_cast<char>(high * 16 + low);
  }
  return bytes;
}

std::optional<integer> integer_of(std::string_view digits) {
  integer made{digits.starts_with('-'), 0};
  if (made.is_negative) digits.remove_prefix(1);
  if (digits.empty()) return std::nullopt;
  for (const char c : digits) {
    if (c < '0' || c > '9') return std::nullopt;
    if (__builtin_mul_overflow(made.magnitude, std::uint64_t{10}, &made.magnitude)) return std::nullopt;
    if (__builtin_add_overflow(made.magnitude, static_cast<std::uint64_t>(c - '0'), &made.magnitude))
      return std::nullopt;
  }
  return made;
}

// Reads the value behind a tag; nothing for the tags of other kinds of values.
std::optional<value> tagged_value(const std::string& tag, const json& held) {
  if (!held.is_string()) return std::nullopt;
  const std::string& spelled = held.get_ref<const std::string&>();
  if (tag == "$int") {
    const auto made = integer_of(spelled);
    return made ? std::optional(value(*made)) : std::nullopt;
  }
  if (tag == "$float") return value(std::strtod(spelled.c_str(), nullptr));
  if (tag != "$bytes") return std::nullopt;
  // A string that is UTF-8 would come back as a str.
  auto bytes = bytes_of_hex(spelled);
  return bytes && !is_utf8(*bytes) ? std::optional(value(text{*std::move(bytes)})) : std::nullopt;
}

std::optional<value> value_of(const json& from) {
  if (from.is_boolean()) return value(from.get<bool>());
  if (from.is_number_unsigned()) return value(integer{false, from.get<std::uint64_t>()});
  if (from.is_number_integer())
    return value(integer{true, std::uint64_t{0} - static_cast<std::uint64_t>(from.get<std::int64_t>())});
  if (from.is_string()) return value(text{from.get<std::string>()});
  if (from.is_array()) return value(from.get_ptr<const json::array_t*>());
  if (from.is_object() && from.size() == 1) return tagged_value(from.begin().key(), from.begin().value());
  return std::nullopt;
}

bool fits(const integer& number, std::uint64_t most, std::uint64_t most_negative) {
  return number.magnitude <= (number.is_negative ? most_negative : most);
}

bool holds(value_type type, const integer& number) {
  const auto bits = static_cast<unsigned>(8 * value_bytes(type));
  const std::uint64_t half = std::uint64_t{1} << (bits - 1);
  switch (type) {
    case value_type::uint8:
    case value_type::uint16:
    case value_type::uint32:
    case value_type::uint64:
      return fits(number, half - 1 + half, 0);
    case value_type::int8:
    case value_type::int16:
    case value_type::int32:
    case value_type::int64:
      return fits(number, half - 1, half);
    default:
      return false;
  }
}

bool is_exact_in_float32(double number) {
  return std::isnan(number) || static_cast<double>(static_cast<float>(number)) == number;
}

// Returns whether a type can hold a value without changing it.
bool holds(value_type type, const value& held) {
  switch (type) {
    case value_type::boolean:
      return std::holds_alternative<bool>(held);
    case value_type::string:
      return std::holds_alternative<text>(held);
    case value_type::array:
      return std::holds_alternative<const json::array_t*>(held);
    case value_type::float32:
      return std::holds_alternative<double>(held) && is_exact_in_float32(std::get<double>(held));
    case value_type::float64:
      return std::holds_alternative<double>(held);
    default:
      return std::holds_alternative<integer>(held) && value_bytes(type) > 0 && holds(type, std::get<integer>(held));
  }
}

constexpr std::array scalar_preference{value_type::boolean, value_type::string,  value_type::array,
                                       value_type::uint32,  value_type::uint64,  value_type::int32,
                                       value_type::int64,   value_type::float32, value_type::float64};
constexpr std::array element_preference{value_type::boolean, value_type::string,  value_type::array,
                                        value_type::int32,   value_type::uint32,  value_type::int64,
                                        value_type::uint64,  value_type::float32, value_type::float64};

value_type type_of_scalar(const value& held) {
  // Every value is of at least one of these types: an integer of 64 bits may be beyond int64.
  for (const value_type type : scalar_preference)
    if (holds(type, held)) return type;
  return value_type::array;
}

// Returns the type that holds every element: `wanted` if it does. Nothing when no type does. The elements are converted
// one at a time, here and when they are written: a list of them would have 40 bytes for each number.
std::optional<value_type> type_of_elements(const json::array_t& elements, std::optional<value_type> wanted) {
  std::array<bool, element_preference.size()> possible{};
  possible.fill(true);
  bool wanted_fits = wanted.has_value();
  for (const json& element : elements) {
    const auto held = value_of(element);
    if (!held) return std::nullopt;
    for (std::size_t i = 0; i < possible.size(); ++i) possible[i] = possible[i] && holds(element_preference[i], *held);
    wanted_fits = wanted_fits && holds(*wanted, *held);
  }
  if (wanted_fits) return wanted;
  if (elements.empty()) return value_type::int32;
  for (std::size_t i = 0; i < possible.size(); ++i)
    if (possible[i]) return element_preference[i];
  return std::nullopt;
}

std::optional<value_type> type_called(std::string_view name) {
  for (std::uint32_t number = 0; number <= static_cast<std::uint32_t>(value_type::float64); ++number)
    if (value_name(static_cast<value_type>(number)) == name) return static_cast<value_type>(number);
  return std::nullopt;
}

template <class Number>
void append_bytes(std::string& out, Number number) {
  const auto bytes = std::bit_cast<std::array<char, sizeof(Number)>>(number);
  out.append(bytes.data(), bytes.size());
}

void append_integer(std::string& out, value_type type, const integer& number) {
  const std::uint64_t bits = number.is_negative ? std::uint64_t{0} - number.magnitude : number.magnitude;
  const auto bytes = std::bit_cast<std::array<char, sizeof bits>>(bits);  // two's complement, little-endian
  out.append(bytes.data(), static_cast<std::size_t>(value_bytes(type)));
}

// Appends a value without its type. `elements`: the type's name of an array's elements; empty: the values decide.
// Returns false when no type holds the elements of an array.
bool append_value(std::string& out, value_type type, const value& held, std::string_view elements) {
  if (type == value_type::boolean) return out += std::get<bool>(held) ? '\1' : '\0', true;
  if (type == value_type::string) return append_text(out, std::get<text>(held).bytes), true;
  if (type == value_type::float32) return append_bytes(out, static_cast<float>(std::get<double>(held))), true;
  if (type == value_type::float64) return append_bytes(out, std::get<double>(held)), true;
  if (type != value_type::array) return append_integer(out, type, std::get<integer>(held)), true;
  const json::array_t& items = *std::get<const json::array_t*>(held);
  const bool is_nested = elements.starts_with('[') && elements.ends_with(']');
  const auto chosen = type_of_elements(items, is_nested ? std::optional(value_type::array) : type_called(elements));
  if (!chosen) return false;
  append_number(out, static_cast<std::uint32_t>(*chosen));
  append_number(out, static_cast<std::uint64_t>(items.size()));
  const std::string_view inner = is_nested ? elements.substr(1, elements.size() - 2) : std::string_view();
  return std::all_of(items.begin(), items.end(), [&](const json& item) {
    const auto made = value_of(item);
    return made && append_value(out, *chosen, *made, inner);
  });
}

}  // namespace

void append_number(std::string& out, std::uint32_t number) {
  append_bytes(out, number);
}

void append_number(std::string& out, std::uint64_t number) {
  append_bytes(out, number);
}

void append_text(std::string& out, std::string_view text) {
  append_number(out, static_cast<std::uint64_t>(text.size()));
  out += text;
}

void append_entry(std::string& out, std::string_view key, std::uint32_t value) {
  append_text(out, key);
  append_number(out, static_cast<std::uint32_t>(value_type::uint32));
  append_number(out, value);
}

void append_entry(std::string& out, std::string_view key, std::string_view value) {
  append_text(out, key);
  append_number(out, static_cast<std::uint32_t>(value_type::string));
  append_text(out, value);
}

result<std::optional<std::string>> encode_value(std::string_view described, std::string_view type) {
  const json whole = json::parse(described, nullptr, false);
  if (!whole.is_object() || !whole.contains("value")) return fail(errc::bad_format, "its value is not known JSON");
  const auto held = value_of(whole["value"]);
  if (!held) return std::optional<std::string>();
  const bool is_list = type.starts_with('[') && type.ends_with(']');
  const auto wanted = is_list ? std::optional(value_type::array) : type_called(type);
  const value_type chosen = wanted && holds(*wanted, *held) ? *wanted : type_of_scalar(*held);
  if (!holds(chosen, *held)) return std::optional<std::string>();
  std::string out;
  append_number(out, static_cast<std::uint32_t>(chosen));
  const std::string_view elements = is_list ? type.substr(1, type.size() - 2) : std::string_view();
  if (!append_value(out, chosen, *held, elements)) return std::optional<std::string>();
  return std::optional(std::move(out));
}

std::optional<std::string> unusual_type(const metadata_entry& entry) {
  if (entry.type == value_type::array) {
    const value_type elements = entry.elements;
    const bool is_usual = elements == value_type::array || elements == value_type::boolean ||
                          elements == value_type::string || elements == value_type::float32;
    if (elements == value_type::int32 || (is_usual && entry.count > 0)) return std::nullopt;
    return fmt::format("[{}]", value_name(elements));
  }
  const bool is_usual = entry.type == value_type::uint32 || entry.type == value_type::float32 ||
                        entry.type == value_type::boolean || entry.type == value_type::string;
  return is_usual ? std::nullopt : std::optional(std::string(value_name(entry.type)));
}

}  // namespace shardmesh::gguf
