// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.gguf;

import shardmesh.digest;
import shardmesh.storage;
import shardmesh.torch_file;
import :cursor;
import :metadata_value;

namespace shardmesh::gguf {
namespace {

// JSON holds smaller integers exactly, in every program.
constexpr std::int64_t json_integer_limit = std::int64_t{1} << 53;

// Prints values. The text of a small file could be large, so its growth is charged.
class value_printer {
 public:
  value_printer(cursor& at, read_budget& budget) : at_(at), budget_(budget) {}

  result<std::string> print(value_type type) {
    SHARDMESH_TRY(append(type, 0));
    SHARDMESH_TRY(charge(0));
    return std::move(out_);
  }

 private:
  static constexpr std::size_t charged_at_once = 1 << 16;

  result<void> charge(std::size_t unless_below) {
    if (out_.size() - charged_ < unless_below) return {};
    const std::size_t more = out_.size() - charged_;
    charged_ = out_.size();
    return budget_.build(static_cast<std::int64_t>(more));
  }

  template <class Number>
  result<void> append_integer() {
    SHARDMESH_TRY(const Number value, at_.number<Number>("a number"));
    const bool is_small =
        std::in_range<std::int64_t>(value) &&
        static_cast<std::int64_t>(value)<json_integer_limit&& static_cast<std::int64_t>(value)> - json_integer_limit;
    if (is_small)
      fmt::format_to(std::back_inserter(out_), "{}", value);
    else
      fmt::format_to(std::back_inserter(out_), "{{\"$int\":\"{}\"}}", value);
    return {};
  }

  template <class Number>
  result<void> append_floating() {
    SHARDMESH_TRY(const Number value, at_.number<Number>("a number"));
    fmt::format_to(std::back_inserter(out_), "{{\"$float\":\"{}\"}}",
                   torch_file::float_hex(static_cast<double>(value)));
    return {};
  }

  result<void> append_boolean() {
    SHARDMESH_TRY(const auto value, at_.number<std::uint8_t>("a boolean"));
    if (value > 1)
      return fail(errc::bad_format, "a boolean has another value").with_values("0 or 1", fmt::format("{}", value));
    out_ += value == 1 ? "true" : "false";
    return {};
  }

  result<void> append_string() {
    SHARDMESH_TRY(const std::string text, at_.text(at_.left(), "a string"));
    if (is_utf8(text))
      out_ += json_quoted(text);
    else
      fmt::format_to(std::back_inserter(out_), "{{\"$bytes\":\"{}\"}}", hex_digits(std::string_view(text)));
    return {};
  }

  result<void> append_array(int depth) {
    SHARDMESH_TRY(const value_type elements, read_value_type(at_));
    SHARDMESH_TRY(const std::int64_t count, at_.count(1, "the length of an array"));
    out_ += '[';
    for (std::int64_t i = 0; i < count; ++i) {
      if (i > 0) out_ += ',';
      SHARDMESH_TRY(append(elements, depth + 1));
      SHARDMESH_TRY(charge(charged_at_once));
    }
    out_ += ']';
    return {};
  }

  result<void> append(value_type type, int depth) {
    switch (type) {
      case value_type::uint8:
        return append_integer<std::uint8_t>();
      case value_type::int8:
        return append_integer<std::int8_t>();
      case value_type::uint16:
        return append_integer<std::uint16_t>();
      case value_type::int16:
        return append_integer<std::int16_t>();
      case value_type::uint32:
        return append_integer<std::uint32_t>();
      case value_type::int32:
        return append_integer<std::int32_t>();
      case value_type::uint64:
        return append_integer<std::uint64_t>();
      case value_type::int64:
        return append_integer<std::int64_t>();
      case value_type::float32:
        return append_floating<float>();
      case value_type::float64:
        return append_floating<double>();
      case value_type::boolean:
        return append_boolean();
      case value_type::string:
        return append_string();
      case value_type::array:
        return append_array(depth);  // `skip_value` has checked the depth
    }
    return {};
  }

  cursor& at_;
  read_budget& budget_;
  std::string out_;
  std::size_t charged_ = 0;
};

std::string kind_of(value_type type, std::string_view json) {
  switch (type) {
    case value_type::float32:
    case value_type::float64:
      return "float";
    case value_type::boolean:
      return "bool";
    case value_type::string:
      return json.starts_with('{') ? "bytes" : "str";
    case value_type::array:
      return "list";
    default:
      return "int";
  }
}

cursor cursor_of(const byte_source& source, const metadata_entry& entry, const read_limits& limits) {
  return {source, entry.begin, entry.end, limits.description_bytes};
}

}  // namespace

std::int64_t value_bytes(value_type type) {
  switch (type) {
    case value_type::uint8:
    case value_type::int8:
    case value_type::boolean:
      return 1;
    case value_type::uint16:
    case value_type::int16:
      return 2;
    case value_type::uint32:
    case value_type::int32:
    case value_type::float32:
      return 4;
    case value_type::uint64:
    case value_type::int64:
    case value_type::float64:
      return 8;
    case value_type::string:
    case value_type::array:
      break;
  }
  return 0;
}

std::string_view value_name(value_type type) {
  constexpr std::string_view names[] = {"uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
                                        "bool",  "string", "array",  "uint64", "int64",  "float64"};
  return names[static_cast<std::size_t>(type)];
}

result<value_type> read_value_type(cursor& at) {
  SHARDMESH_TRY(const auto number, at.number<std::uint32_t>("the type of a metadata value"));
  if (number > static_cast<std::uint32_t>(value_type::float64))
    return fail(errc::bad_format, "has a type of value that is not known")
        .with_values(fmt::format("0 to {}", static_cast<std::uint32_t>(value_type::float64)),
                     fmt::format("{}", number));
  return static_cast<value_type>(number);
}

result<array_head> skip_value(cursor& at, value_type type, int depth) {
  if (const std::int64_t bytes = value_bytes(type); bytes > 0) {
    SHARDMESH_TRY(at.skip(bytes, "a number"));
    return array_head{};
  }
  if (type == value_type::string) {
    SHARDMESH_TRY(const std::int64_t length, at.count(1, "the length of a string"));
    SHARDMESH_TRY(at.skip(length, "a string"));
    return array_head{};
  }
  if (depth >= max_array_depth)
    return fail(errc::bad_format, "has arrays in arrays, nested too deep")
        .with_values(fmt::format("at most {} levels", max_array_depth), "more");
  array_head head;
  SHARDMESH_TRY(head.elements, read_value_type(at));
  const std::int64_t each = value_bytes(head.elements);
  const std::int64_t least = each > 0 ? each : head.elements == value_type::string ? 8 : 12;
  SHARDMESH_TRY(head.count, at.count(least, "the length of an array"));
  if (each > 0) {
    SHARDMESH_TRY(at.skip(each * head.count, "an array"));
    return head;
  }
  for (std::int64_t i = 0; i < head.count; ++i) SHARDMESH_TRY(skip_value(at, head.elements, depth + 1));
  return head;
}

result<std::optional<std::uint64_t>> read_unsigned(const byte_source& source, const metadata_entry& entry) {
  using number = std::optional<std::uint64_t>;
  cursor at = cursor_of(source, entry, {});
  const auto read = [&]<class Number>(Number) -> result<number> {
    SHARDMESH_TRY(const Number value, at.number<Number>("a number"));
    return std::in_range<std::uint64_t>(value) ? number(static_cast<std::uint64_t>(value)) : number();
  };
  switch (entry.type) {
    case value_type::uint8:
      return read(std::uint8_t{});
    case value_type::uint16:
      return read(std::uint16_t{});
    case value_type::uint32:
      return read(std::uint32_t{});
    case value_type::uint64:
      return read(std::uint64_t{});
    case value_type::int8:
      return read(std::int8_t{});
    case value_type::int16:
      return read(std::int16_t{});
    case value_type::int32:
      return read(std::int32_t{});
    case value_type::int64:
      return read(std::int64_t{});
    default:
      return number();
  }
}

result<std::string> read_string(const byte_source& source, const metadata_entry& entry, const read_limits& limits) {
  cursor at = cursor_of(source, entry, limits);
  return at.text(at.left(), "a string");
}

result<object_value> read_value(const byte_source& source, const metadata_entry& entry, const read_limits& limits) {
  // Each value has its own budget, since a value may be read any number of times.
  read_budget budget(limits);
  budget.add_description(entry.end - entry.begin);
  cursor at = cursor_of(source, entry, limits);
  auto json = value_printer(at, budget).print(entry.type);
  if (!json) return std::move(json).error().with_key(entry.key);
  object_value made;
  made.kind = kind_of(entry.type, *json);
  made.type = "builtins." + made.kind;
  made.json = *std::move(json);
  return made;
}

}  // namespace shardmesh::gguf
