// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :numpy_value;

namespace shardmesh::torch_file {
namespace {

constexpr std::int64_t most_bytes = std::int64_t{64} << 20;
constexpr std::size_t most_shown = 64;
constexpr std::size_t most_dimensions = 64;  // numpy's own limit

// A dtype code after its byte order: "f8", "U3", "M8[ns]".
struct type_code {
  char order = '|', kind = 0;
  std::int64_t item_bytes = 0;
  std::string unit;
};

// Strict: it accepts only text that numpy itself would write.
std::optional<type_code> parse_code(std::string_view text) {
  if (text.size() < 3 || std::string_view("<>|").find(text[0]) == std::string_view::npos) return std::nullopt;
  type_code code{text[0], text[1], 0, {}};
  std::int64_t number = 0;
  const auto [end, status] = std::from_chars(text.data() + 2, text.data() + text.size(), number);
  if (status != std::errc{} || number < 0 || number > (1 << 20)) return std::nullopt;
  const std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const bool is_time = code.kind == 'M' || code.kind == 'm';
  if (rest.empty() == is_time) return std::nullopt;
  if (is_time) {
    if (rest.size() < 3 || rest.size() > 16 || rest.front() != '[' || rest.back() != ']') return std::nullopt;
    code.unit = rest.substr(1, rest.size() - 2);
    if (!std::all_of(code.unit.begin(), code.unit.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }))
      return std::nullopt;
  }
  code.item_bytes = code.kind == 'U' ? 4 * number : number;
  const auto is_one_of = [&](std::initializer_list<std::int64_t> widths) {
    return std::find(widths.begin(), widths.end(), number) != widths.end();
  };
  switch (code.kind) {
    case 'b':
      return is_one_of({1}) ? std::optional(code) : std::nullopt;
    case 'i':
    case 'u':
      return is_one_of({1, 2, 4, 8}) ? std::optional(code) : std::nullopt;
    case 'f':
      return is_one_of({2, 4, 8}) ? std::optional(code) : std::nullopt;
    case 'c':
      return is_one_of({8, 16}) ? std::optional(code) : std::nullopt;
    case 'M':
    case 'm':
      return is_one_of({8}) ? std::optional(code) : std::nullopt;
    case 'U':
    case 'S':
      return code;
    default:
      return std::nullopt;
  }
}

pickle::value at(const pickle::items& items, std::size_t i) {
  return i < items.size() ? items[i] : pickle::value();
}

// Returns the type string of a pickled dtype: dtype("f8", False, True) with the state (version, order, ...).
std::optional<std::string> type_string(const pickle::value& record) {
  if (!record.is_record_of("numpy", "dtype")) return std::nullopt;
  const auto code = at(record.args().items(), 0).text();
  const pickle::items state = record.state().items();
  if (!code || code->empty() || code->size() > 16) return std::nullopt;
  std::string_view order = at(state, 1).text().value_or("|");
  if (order == "=") order = std::endian::native == std::endian::little ? "<" : ">";
  // A dtype with a shape, names, or fields is a record.
  for (const std::size_t i : {2, 3, 4})
    if (at(state, i) && !at(state, i).is_none()) return std::nullopt;
  // Our own pickles have the order and the unit in one text and no state.
  if (order.empty() || std::string_view("<>|").find(code->front()) != std::string_view::npos)
    return parse_code(*code) ? std::optional(std::string(*code)) : std::nullopt;
  std::string text = std::string(order) + std::string(*code);
  if ((*code)[0] == 'M' || (*code)[0] == 'm') {
    const pickle::items unit = at(at(state, 8).items(), 1).items();  // (unit, count, denominator, events)
    const auto name = unit.size() == 4 ? bytes_of(unit[0]) : std::nullopt;
    const auto count = unit.size() == 4 ? unit[1].as_int() : std::nullopt;
    if (!name || !count || unit[2].as_int() != 1) return std::nullopt;
    text += fmt::format("[{}{}]", *count == 1 ? std::string() : std::to_string(*count), *name);
  }
  return parse_code(text) ? std::optional(text) : std::nullopt;
}

std::optional<std::int64_t> bytes_of_shape(std::span<const std::int64_t> shape, std::int64_t item_bytes) {
  std::int64_t total = item_bytes;
  if (shape.size() > most_dimensions) return std::nullopt;
  for (const std::int64_t size : shape) {
    const auto product = size < 0 ? std::nullopt : checked_multiply(total, size);
    if (!product) return std::nullopt;
    total = *product;
  }
  return total;
}

std::optional<std::vector<std::int64_t>> shape_of(const pickle::value& value) {
  if (value.kind() != pickle::kind::tuple || value.size() > most_dimensions) return std::nullopt;
  std::vector<std::int64_t> shape;
  for (const pickle::value size : value.items()) {
    const auto number = size.as_int();
    if (!number) return std::nullopt;
    shape.push_back(*number);
  }
  return shape;
}

// Copies elements with these strides into row-major order.
std::string row_major(const std::string& data, const std::vector<std::int64_t>& shape,
                      const std::vector<std::int64_t>& strides, std::size_t item) {
  std::string out(data.size(), '\0');
  std::vector<std::int64_t> index(shape.size(), 0);
  for (std::size_t to = 0; to < data.size(); to += item) {
    std::int64_t from = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) from += index[d] * strides[d];
    std::memcpy(out.data() + to, data.data() + static_cast<std::size_t>(from) * item, item);
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
  return out;
}

bool is_function(const pickle::value& record, std::string_view function) {
  const std::string_view module_name = record.callable().global_module();
  return record.callable().global_name() == function &&
         (module_name.starts_with("numpy.core.") || module_name.starts_with("numpy._core."));
}

// The parts of a pickled array, in either of numpy's two forms. Absent values for other records.
struct array_parts {
  pickle::value dtype, shape, data;
  bool is_column_major = false;
  // numpy 2.3's order "K": the array's axes, in order, as indices into the row-major array of `shape`.
  pickle::value axes{};
};

array_parts parts_of(const pickle::value& value) {
  const pickle::items args = value.args().items();
  if (is_function(value, "_frombuffer") && (args.size() == 4 || args.size() == 5)) {  // protocol 5
    const bool is_transposed = args.size() == 5 && args[3].text() == "K" && !args[4].is_none();
    return {args[1], args[2], args[0], args[3].text() == "F", is_transposed ? args[4] : pickle::value()};
  }
  const pickle::items state = value.state().items();  // version, shape, dtype, is_fortran, bytes
  if (!is_function(value, "_reconstruct") || args.empty() || !args[0].is_global("numpy", "ndarray") ||
      state.size() != 5)
    return {};
  return {state[2], state[1], state[4], state[3].as_bool().value_or(false)};
}

struct placed_shape {
  std::vector<std::int64_t> shape, strides;
};

// Returns shape and strides. Empty for an invalid shape, for axes that do not permute its dimensions, and for a shape
// that does not fit the number of bytes.
std::optional<placed_shape> placed_shape_of(const array_parts& parts, std::int64_t item_bytes, std::size_t length) {
  auto stored = shape_of(parts.shape);
  const auto bytes = stored ? bytes_of_shape(*stored, item_bytes) : std::nullopt;
  if (!bytes || static_cast<std::uint64_t>(*bytes) != length) return std::nullopt;
  const std::size_t rank = stored->size();
  std::vector<std::int64_t> strides(rank, 1);
  // An empty array's products may overflow, and it has no element to locate.
  for (std::size_t d = 1; d < rank && *bytes > 0; ++d) {
    if (parts.is_column_major)
      strides[d] = strides[d - 1] * (*stored)[d - 1];
    else
      strides[rank - 1 - d] = strides[rank - d] * (*stored)[rank - d];
  }
  if (!parts.axes) return placed_shape{*std::move(stored), std::move(strides)};
  const auto axes = shape_of(parts.axes);
  if (!axes || axes->size() != rank) return std::nullopt;
  placed_shape made;
  std::vector<bool> used(rank);
  for (const std::int64_t axis : *axes) {
    if (axis < 0 || static_cast<std::size_t>(axis) >= rank || used[static_cast<std::size_t>(axis)]) return std::nullopt;
    used[static_cast<std::size_t>(axis)] = true;
    made.shape.push_back((*stored)[static_cast<std::size_t>(axis)]);
    made.strides.push_back(strides[static_cast<std::size_t>(axis)]);
  }
  return made;
}

std::optional<numpy_value> array_of(const array_parts& parts) {
  auto dtype = type_string(parts.dtype);
  auto data = bytes_of(parts.data);
  if (!dtype || !data || data->size() > static_cast<std::size_t>(most_bytes)) return std::nullopt;
  const std::int64_t item = parse_code(*dtype)->item_bytes;
  auto placed = placed_shape_of(parts, item, data->size());
  if (!placed) return std::nullopt;
  if ((parts.is_column_major || parts.axes) && placed->shape.size() > 1 && item > 0)
    data = row_major(*data, placed->shape, placed->strides, static_cast<std::size_t>(item));
  return numpy_value{*std::move(dtype), std::move(placed->shape), *std::move(data), false};
}

std::uint64_t number_at(const type_code& code, std::string_view element) {
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
std::string utf8_of(const type_code& code, std::string_view element) {
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

std::string element_json(const type_code& code, std::string_view element) {
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

void write_dtype(pickle::writer& out, const std::string& dtype) {
  out.global("numpy", "dtype");
  out.begin_tuple();
  out.text(dtype);
  out.boolean(false);
  out.boolean(true);
  out.end_tuple();
  out.reduce();
}

void write_bytes(pickle::writer& out, std::string_view bytes) {
  out.bytes(std::as_bytes(std::span(bytes)));
}

}  // namespace

std::optional<numpy_value> numpy_value_of(const pickle::value& value) {
  if (value.kind() != pickle::kind::record) return std::nullopt;
  const pickle::items args = value.args().items();
  if (is_function(value, "scalar") && args.size() == 2) {
    const auto dtype = type_string(args[0]);
    auto data = bytes_of(args[1]);
    if (!dtype || !data || static_cast<std::int64_t>(data->size()) != parse_code(*dtype)->item_bytes)
      return std::nullopt;
    return numpy_value{*dtype, {}, *std::move(data), true};
  }
  const array_parts parts = parts_of(value);
  return parts.data ? array_of(parts) : std::nullopt;
}

std::optional<numpy_array> numpy_array_of(const pickle::value& value) {
  const array_parts parts = parts_of(value);
  const auto data = parts.data.bytes();
  const auto dtype = data ? type_string(parts.dtype) : std::nullopt;
  auto placed = dtype ? placed_shape_of(parts, parse_code(*dtype)->item_bytes, data->size()) : std::nullopt;
  if (!placed) return std::nullopt;
  return numpy_array{*dtype, std::move(placed->shape), *data, std::move(placed->strides)};
}

std::string numpy_members(const numpy_value& value) {
  const auto code = parse_code(value.dtype);
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

result<void> write_numpy(pickle::writer& out, const numpy_value& value) {
  const auto code = parse_code(value.dtype);
  const auto bytes = code ? bytes_of_shape(value.shape, code->item_bytes) : std::nullopt;
  if (!bytes || *bytes > most_bytes || *bytes != static_cast<std::int64_t>(value.data.size()))
    return fail(errc::bad_format, "a numpy value's dtype, shape, and bytes disagree")
        .with_values(bytes ? fmt::format("{} bytes", *bytes) : "a dtype and a shape that numpy knows",
                     fmt::format("{}, {} bytes", escaped(value.dtype), value.data.size()));
  // Every release reads numpy.core: since 2.0 it keeps these two names for old pickles.
  out.global("numpy.core.multiarray", value.is_scalar ? "scalar" : "_reconstruct");
  out.begin_tuple();
  if (value.is_scalar) {
    write_dtype(out, value.dtype);
    write_bytes(out, value.data);
    out.end_tuple();
    out.reduce();
    return {};
  }
  out.global("numpy", "ndarray");
  out.begin_tuple();
  out.integer(0);
  out.end_tuple();
  write_bytes(out, "b");
  out.end_tuple();
  out.reduce();
  out.begin_tuple();
  out.integer(1);
  if (value.shape.empty()) out.empty_tuple();
  if (!value.shape.empty()) {
    out.begin_tuple();
    for (const std::int64_t size : value.shape) out.integer(size);
    out.end_tuple();
  }
  write_dtype(out, value.dtype);
  out.boolean(false);
  write_bytes(out, value.data);
  out.end_tuple();
  out.build();
  return {};
}

}  // namespace shardmesh::torch_file
