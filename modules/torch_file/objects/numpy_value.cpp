// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <bit>
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

import :numpy_code;
import :numpy_value;

namespace shardmesh::torch_file {
namespace {

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
    return parse_numpy_code(*code) ? std::optional(std::string(*code)) : std::nullopt;
  std::string text = std::string(order) + std::string(*code);
  if ((*code)[0] == 'M' || (*code)[0] == 'm') {
    const pickle::items unit = at(at(state, 8).items(), 1).items();  // (unit, count, denominator, events)
    const auto name = unit.size() == 4 ? bytes_of(unit[0]) : std::nullopt;
    const auto count = unit.size() == 4 ? unit[1].as_int() : std::nullopt;
    if (!name || !count || unit[2].as_int() != 1) return std::nullopt;
    text += fmt::format("[{}{}]", *count == 1 ? std::string() : std::to_string(*count), *name);
  }
  return parse_numpy_code(text) ? std::optional(text) : std::nullopt;
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
  if (!dtype || !data || data->size() > static_cast<std::size_t>(most_numpy_bytes)) return std::nullopt;
  const std::int64_t item = parse_numpy_code(*dtype)->item_bytes;
  auto placed = placed_shape_of(parts, item, data->size());
  if (!placed) return std::nullopt;
  if ((parts.is_column_major || parts.axes) && placed->shape.size() > 1 && item > 0)
    data = row_major(*data, placed->shape, placed->strides, static_cast<std::size_t>(item));
  return numpy_value{*std::move(dtype), std::move(placed->shape), *std::move(data), false};
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
    if (!dtype || !data || static_cast<std::int64_t>(data->size()) != parse_numpy_code(*dtype)->item_bytes)
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
  auto placed = dtype ? placed_shape_of(parts, parse_numpy_code(*dtype)->item_bytes, data->size()) : std::nullopt;
  if (!placed) return std::nullopt;
  return numpy_array{*dtype, std::move(placed->shape), *data, std::move(placed->strides)};
}

result<void> write_numpy(pickle::writer& out, const numpy_value& value) {
  const auto code = parse_numpy_code(value.dtype);
  const auto bytes = code ? bytes_of_shape(value.shape, code->item_bytes) : std::nullopt;
  if (!bytes || *bytes > most_numpy_bytes || *bytes != static_cast<std::int64_t>(value.data.size()))
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
