// SPDX-License-Identifier: Apache-2.0
module;
#include <kernels/ieee_mode.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
module shardmesh.kernels;

import :lanes;
import :loops;

namespace shardmesh {
namespace {

template <class T>
T at(const pass_buffer& lanes, std::int64_t i) {
  T value;
  std::memcpy(&value, lanes.bytes + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// `bit` is the offset of the first element from `data`.
void load_any(dtype type, const std::byte* data, std::int64_t bit, std::int64_t stride, std::int64_t count,
              pass_buffer& out) {
  if (bits(type) % 8 != 0) return load_packed(type, data, bit, stride, count, out);
  load_lanes(type, data + bit / 8, stride / 8, count, out);
}

// Types without values are loaded as unsigned integers of the same size.
dtype type_of_bits(dtype type) {
  if (lane_of(type) != lane::none) return type;
  return bits(type) == 16 ? dtype::uint16 : dtype::uint8;
}

bool is_integral(lane which) {
  return which == lane::i64 || which == lane::u64;
}

// A 65-bit integer: sign and magnitude. Exact for both integer lanes.
struct wide {
  bool negative = false;
  std::uint64_t magnitude = 0;
  friend bool operator==(const wide&, const wide&) = default;
};
wide wide_at(lane which, const pass_buffer& lanes, std::int64_t i) {
  if (which == lane::u64) return {false, at<std::uint64_t>(lanes, i)};
  const auto value = at<std::int64_t>(lanes, i);
  return {value < 0, value < 0 ? ~static_cast<std::uint64_t>(value) + 1 : static_cast<std::uint64_t>(value)};
}
double distance(const wide& a, const wide& b) {
  if (a.negative == b.negative)
    return static_cast<double>(a.magnitude > b.magnitude ? a.magnitude - b.magnitude : b.magnitude - a.magnitude);
  return static_cast<double>(a.magnitude) + static_cast<double>(b.magnitude);
}

std::complex<double> complex_at(lane which, const pass_buffer& lanes, std::int64_t i) {
  switch (which) {
    case lane::i64:
      return static_cast<double>(at<std::int64_t>(lanes, i));
    case lane::u64:
      return static_cast<double>(at<std::uint64_t>(lanes, i));
    case lane::f32:
      return static_cast<double>(at<float>(lanes, i));
    case lane::f64:
      return at<double>(lanes, i);
    case lane::c64:
      return std::complex<double>(at<std::complex<float>>(lanes, i));
    case lane::c128:
      return at<std::complex<double>>(lanes, i);
    case lane::none:
      break;
  }
  return 0;
}

bool same(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

// The distance of two numbers, infinite unless both are finite, and whether it is within the tolerance.
struct verdict {
  bool equal = true;
  double difference = 0;
};
verdict judge(const std::complex<double>& a, const std::complex<double>& b, double tolerance) {
  if (same(a.real(), b.real()) && same(a.imag(), b.imag())) return {};
  double difference = std::hypot(a.real() - b.real(), a.imag() - b.imag());
  if (!std::isfinite(difference)) {
    const bool finite =
        std::isfinite(a.real()) && std::isfinite(a.imag()) && std::isfinite(b.real()) && std::isfinite(b.imag());
    return {false, finite ? std::numeric_limits<double>::max() : std::numeric_limits<double>::infinity()};
  }
  return {difference <= tolerance + tolerance * std::hypot(b.real(), b.imag()) && tolerance > 0, difference};
}
verdict judge(const wide& a, const wide& b, double tolerance) {
  if (a == b) return {};
  const double difference = distance(a, b);
  return {tolerance > 0 && difference <= tolerance + tolerance * static_cast<double>(b.magnitude), difference};
}

verdict judge(double a, double b, double tolerance) {
  if (same(a, b)) return {};
  const double difference = std::fabs(a - b);
  if (!std::isfinite(difference))
    return {false, std::isfinite(a) && std::isfinite(b) ? std::numeric_limits<double>::max()
                                                        : std::numeric_limits<double>::infinity()};
  return {tolerance > 0 && difference <= tolerance + tolerance * std::fabs(b), difference};
}

// Compares an integer with a floating-point number exactly. Beyond 2^53, a double cannot tell neighbouring integers
// apart, so both are compared as integers.
verdict judge(const wide& a, const std::complex<double>& b, double tolerance, bool swapped) {
  constexpr double beyond = 18446744073709551616.0;  // 2^64: no integer reaches it, but the largest are rounded to it
  const double rounded = a.negative ? -static_cast<double>(a.magnitude) : static_cast<double>(a.magnitude);
  const bool is_whole = b.imag() == 0 && std::isfinite(b.real()) && b.real() == std::trunc(b.real());
  if (a.magnitude > std::uint64_t{1} << 53 && is_whole && std::fabs(b.real()) < beyond) {
    const wide other{b.real() < 0, static_cast<std::uint64_t>(std::fabs(b.real()))};
    return swapped ? judge(other, a, tolerance) : judge(a, other, tolerance);
  }
  if (is_whole && rounded == b.real() && std::fabs(b.real()) >= beyond)
    return {tolerance > 0 && 1 <= tolerance + tolerance * beyond, 1};
  return swapped ? judge(b, std::complex<double>(rounded), tolerance)
                 : judge(std::complex<double>(rounded), b, tolerance);
}

bool is_complex(lane which) {
  return which == lane::c64 || which == lane::c128;
}

// Lanes of a real type as double.
using real_pass = std::array<double, static_cast<std::size_t>(pass_length)>;
void to_doubles(lane which, const pass_buffer& lanes, std::int64_t count, real_pass& out) {
  for (std::int64_t i = 0; i < count; ++i) {
    double& value = out[static_cast<std::size_t>(i)];
    switch (which) {
      case lane::i64:
        value = static_cast<double>(at<std::int64_t>(lanes, i));
        break;
      case lane::u64:
        value = static_cast<double>(at<std::uint64_t>(lanes, i));
        break;
      case lane::f32:
        value = static_cast<double>(at<float>(lanes, i));
        break;
      default:
        value = at<double>(lanes, i);
        break;
    }
  }
}

extents index_of(const extents& sizes, std::int64_t position) {
  extents index = sizes;
  for (std::size_t d = sizes.rank(); d-- > 0;) {
    index[d] = position % sizes[d];
    position /= sizes[d];
  }
  return index;
}

template <class Number>
std::string digits(Number value) {
  if constexpr (std::is_floating_point_v<Number>)
    if (std::isnan(value)) return "nan";
  std::array<char, 64> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

template <class Number>
std::string complex_text(std::complex<Number> value) {
  const std::string imaginary = digits(value.imag());
  return "(" + digits(value.real()) + (imaginary.starts_with('-') ? "" : "+") + imaginary + "j)";
}

std::string hex_text(std::uint64_t value, int width) {
  std::string text = "0x";
  for (int at = width - 4; at >= 0; at -= 4) text += "0123456789abcdef"[value >> at & 15];
  return text;
}

[[gnu::noinline]] result<comparison> compare_exactly(const const_tensor_view& a, const const_tensor_view& b,
                                                     const compare_options& options) {
  SHARDMESH_TRY(check_pair(a, b));
  if (a.type != b.type) {
    if (!options.ignore_dtype)
      return fail(errc::dtype_mismatch, "the two tensors differ in dtype")
          .with_values(std::string(name(a.type)), std::string(name(b.type)));
    for (const dtype type : {a.type, b.type})
      if (lane_of(type) == lane::none)
        return fail(errc::unsupported, "cannot compare values of " + std::string(name(type)) + " with another dtype");
  }
  const dtype a_type = type_of_bits(a.type), b_type = type_of_bits(b.type);
  const lane a_lane = lane_of(a_type), b_lane = lane_of(b_type);
  const bool exact = is_integral(a_lane) && is_integral(b_lane);
  const bool mixed = !exact && is_integral(a_lane) != is_integral(b_lane);
  const bool real = !exact && !mixed && !is_complex(a_lane) && !is_complex(b_lane);
  const loop_nest nest = ordered_nest(a, b);
  const loop_nest::loop inner = nest.rank > 0 ? nest.inner() : loop_nest::loop{1, 0, 0};
  // Only adjacent bytes can be compared at once.
  const bool dense = a.type == b.type && inner.a == bits(a.type) && inner.b == inner.a && inner.a % 8 == 0;

  comparison found;
  std::int64_t position = 0;
  pass_buffer a_lanes, b_lanes;
  real_pass a_values, b_values;
  const auto judge_at = [&](std::int64_t i) {
    const auto n = static_cast<std::size_t>(i);
    if (real) return judge(a_values[n], b_values[n], options.tolerance);
    if (exact) return judge(wide_at(a_lane, a_lanes, i), wide_at(b_lane, b_lanes, i), options.tolerance);
    if (mixed && is_integral(a_lane))
      return judge(wide_at(a_lane, a_lanes, i), complex_at(b_lane, b_lanes, i), options.tolerance, false);
    if (mixed) return judge(wide_at(b_lane, b_lanes, i), complex_at(a_lane, a_lanes, i), options.tolerance, true);
    return judge(complex_at(a_lane, a_lanes, i), complex_at(b_lane, b_lanes, i), options.tolerance);
  };
  const auto compare_pass = [&](std::int64_t a_bit, std::int64_t b_bit, std::int64_t count) {
    if (dense &&
        std::memcmp(a.data + a_bit / 8, b.data + b_bit / 8, static_cast<std::size_t>(count * inner.a / 8)) == 0)
      return;
    load_any(a_type, a.data, a_bit, inner.a, count, a_lanes);
    load_any(b_type, b.data, b_bit, inner.b, count, b_lanes);
    if (real) to_doubles(a_lane, a_lanes, count, a_values), to_doubles(b_lane, b_lanes, count, b_values);
    for (std::int64_t i = 0; i < count; ++i) {
      const verdict v = judge_at(i);
      if (v.equal) continue;
      if (found.different++ == 0) found.first_index = index_of(a.sizes, position + i);
      found.largest_difference = std::max(found.largest_difference, v.difference);
    }
  };
  for_each_outer(nest, 1, [&](std::int64_t a_bit, std::int64_t b_bit) {
    for (std::int64_t done = 0; done < inner.size; done += pass_length) {
      const std::int64_t count = std::min(pass_length, inner.size - done);
      compare_pass(a_bit + done * inner.a, b_bit + done * inner.b, count);
      position += count;
    }
  });
  return found;
}

std::string text_of(const const_tensor_view& view, const extents& index);

}  // namespace

result<comparison> compare(const const_tensor_view& a, const const_tensor_view& b, const compare_options& options) {
  const ieee_mode subnormals_count;
  return compare_exactly(a, b, options);
}

std::string value_text(const const_tensor_view& view, const extents& index) {
  const ieee_mode subnormals_count;
  return text_of(view, index);
}

namespace {

[[gnu::noinline]] std::string text_of(const const_tensor_view& view, const extents& index) {
  std::int64_t bit = 0;
  for (std::size_t d = 0; d < index.rank(); ++d) bit += index[d] * view.strides[d] * bits(view.type);
  const dtype type = type_of_bits(view.type);
  pass_buffer one;
  load_any(type, view.data, bit, 0, 1, one);
  if (type != view.type) return hex_text(static_cast<std::uint64_t>(at<std::int64_t>(one, 0)), bits(view.type));
  if (type == dtype::boolean) return at<std::int64_t>(one, 0) != 0 ? "true" : "false";
  switch (lane_of(type)) {
    case lane::i64:
      return digits(at<std::int64_t>(one, 0));
    case lane::u64:
      return digits(at<std::uint64_t>(one, 0));
    case lane::f32:
      return digits(at<float>(one, 0));
    case lane::f64:
      return digits(at<double>(one, 0));
    case lane::c64:
      return complex_text(at<std::complex<float>>(one, 0));
    case lane::c128:
      return complex_text(at<std::complex<double>>(one, 0));
    case lane::none:
      break;
  }
  return "undefined";
}

}  // namespace
}  // namespace shardmesh
