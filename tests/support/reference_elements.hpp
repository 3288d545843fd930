// SPDX-License-Identifier: Apache-2.0
// The values of elements of every dtype, and their conversions, reductions, and factors, one element at a time. This
// defines shardmesh.test.reference_kernels and the GPU suite's oracle. C++17, no module, no kernel header.
// reference_kernels.cppm explains what is exact and what is unspecified, and selects elements by strides and boxes.
#pragma once
#include <shardmesh/dtype.hpp>
#include <shardmesh/reduce_op.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>

namespace reference_elements {

using shardmesh::dtype;
using shardmesh::reduce_op;

inline constexpr long double infinity = std::numeric_limits<long double>::infinity();
inline constexpr long double not_a_number = std::numeric_limits<long double>::quiet_NaN();

template <class T>
T get(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
inline void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

// --- floats below 32 bits: sign, exponent, mantissa ---

enum class specials : std::uint8_t {
  ieee,      // the highest exponent is infinity and NaN; overflow becomes infinity
  one_nan,   // all ones is NaN, no infinity; overflow becomes the largest value
  no_minus,  // the pattern of -0 is the only NaN; overflow becomes NaN
};
struct float_format {
  int exponent_bits, mantissa_bits, bias;
  specials kind;

  std::uint32_t sign() const { return 1u << (exponent_bits + mantissa_bits); }
  std::uint32_t exponents() const { return (1u << exponent_bits) - 1; }
  std::uint32_t mantissas() const { return (1u << mantissa_bits) - 1; }
};

inline std::optional<float_format> format_of(dtype type) {
  switch (type) {
    case dtype::float16:
      return float_format{5, 10, 15, specials::ieee};
    case dtype::bfloat16:
      return float_format{8, 7, 127, specials::ieee};
    case dtype::float8_e5m2:
      return float_format{5, 2, 15, specials::ieee};
    case dtype::float8_e4m3fn:
      return float_format{4, 3, 7, specials::one_nan};
    case dtype::float8_e4m3fnuz:
      return float_format{4, 3, 8, specials::no_minus};
    case dtype::float8_e5m2fnuz:
      return float_format{5, 2, 16, specials::no_minus};
    default:
      return std::nullopt;
  }
}

inline long double decoded(const float_format& f, std::uint32_t pattern) {
  const std::uint32_t exponent = pattern >> f.mantissa_bits & f.exponents(), mantissa = pattern & f.mantissas();
  const bool is_negative = (pattern & f.sign()) != 0;
  if (f.kind == specials::ieee && exponent == f.exponents())
    return mantissa != 0 ? not_a_number : is_negative ? -infinity : infinity;
  if (f.kind == specials::one_nan && exponent == f.exponents() && mantissa == f.mantissas()) return not_a_number;
  if (f.kind == specials::no_minus && pattern == f.sign()) return not_a_number;
  const long double significand = static_cast<long double>(mantissa) + (exponent != 0 ? f.mantissas() + 1 : 0);
  const int power = std::max(static_cast<int>(exponent), 1) - f.bias - f.mantissa_bits;
  const long double magnitude = std::ldexp(significand, power);
  return is_negative ? -magnitude : magnitude;
}

inline std::uint32_t largest_finite(const float_format& f) {
  if (f.kind == specials::ieee) return f.sign() - 1 - f.mantissas() - 1;  // the pattern before infinity
  return f.kind == specials::one_nan ? f.sign() - 2 : f.sign() - 1;
}

inline std::uint32_t encoded(const float_format& f, long double value) {
  const std::uint32_t nan = f.kind == specials::no_minus ? f.sign() : f.sign() - 1;
  if (std::isnan(value)) return nan;
  const std::uint32_t sign = std::signbit(value) ? f.sign() : 0;
  const long double magnitude = std::fabs(value);
  if (magnitude == 0) return f.kind == specials::no_minus ? 0 : sign;
  long double rounded = magnitude;
  if (std::isfinite(magnitude)) {
    const int exponent = std::max(std::ilogb(magnitude), 1 - f.bias);
    const long double last_place = std::ldexp(1.0L, exponent - f.mantissa_bits);
    rounded = std::nearbyint(magnitude / last_place) * last_place;  // to nearest, ties to even
  }
  if (rounded > decoded(f, largest_finite(f))) {
    if (f.kind == specials::ieee) return sign | f.exponents() << f.mantissa_bits;
    return f.kind == specials::no_minus ? nan : sign | largest_finite(f);
  }
  // Patterns of one sign ascend with their values.
  std::uint32_t low = 0, high = largest_finite(f);
  while (low < high) {
    const std::uint32_t middle = (low + high) / 2;
    if (decoded(f, middle) < rounded)
      low = middle + 1;
    else
      high = middle;
  }
  return low == 0 && f.kind == specials::no_minus ? 0 : sign | low;
}

// A power of two without a sign. PyTorch rounds a float32's exponent field by its mantissa field: more than half rounds
// up, and exactly half rounds up unless the number is subnormal.
inline std::uint8_t encoded_e8m0(float value) {
  const auto pattern = get<std::uint32_t>(reinterpret_cast<const std::byte*>(&value));
  const std::uint32_t exponent = pattern >> 23 & 0xFF, mantissa = pattern & 0x7FFFFF, half = 0x400000;
  if (exponent == 0xFF) return 0xFF;
  return static_cast<std::uint8_t>(exponent + (mantissa > half || (mantissa == half && exponent > 0) ? 1 : 0));
}

// --- parts: a real dtype is its own part, a complex dtype has two ---

inline dtype part_of(dtype type) {
  if (type == dtype::complex32) return dtype::float16;
  if (type == dtype::complex64) return dtype::float32;
  return type == dtype::complex128 ? dtype::float64 : type;
}
inline bool is_complex(dtype type) {
  return type == dtype::complex32 || type == dtype::complex64 || type == dtype::complex128;
}
inline bool is_floating(dtype type) {
  return type == dtype::float32 || type == dtype::float64 || type == dtype::float8_e8m0fnu ||
         format_of(type).has_value();
}
inline bool is_signed(dtype type) {
  return type == dtype::int8 || type == dtype::int16 || type == dtype::int32 || type == dtype::int64;
}

inline bool is_integral(dtype type) {
  return is_signed(type) || type == dtype::boolean || type == dtype::uint8 || type == dtype::uint16 ||
         type == dtype::uint32 || type == dtype::uint64;
}
/// The width of a dtype of whole bytes; 8 for others, which travel as bytes.
inline int width_bits(dtype type) {
  switch (type) {
    case dtype::int16:
    case dtype::uint16:
    case dtype::float16:
    case dtype::bfloat16:
    case dtype::bits16:
      return 16;
    case dtype::int32:
    case dtype::uint32:
    case dtype::float32:
    case dtype::complex32:
      return 32;
    case dtype::int64:
    case dtype::uint64:
    case dtype::float64:
    case dtype::complex64:
      return 64;
    case dtype::complex128:
      return 128;
    default:
      return 8;
  }
}
inline int width_bytes(dtype type) {
  return width_bits(type) / 8;
}

// The low bytes, sign-extended for signed types.
inline std::uint64_t integer_at(dtype type, const std::byte* element) {
  std::uint64_t value = 0;
  std::memcpy(&value, element, static_cast<std::size_t>(width_bytes(type)));  // little-endian
  const int unused = 64 - width_bits(type);
  if (type == dtype::boolean) return value != 0;
  return is_signed(type) ? static_cast<std::uint64_t>(static_cast<std::int64_t>(value << unused) >> unused) : value;
}
inline void put_integer(dtype type, std::uint64_t value, std::byte* element) {
  if (type == dtype::boolean) value = value != 0;
  std::memcpy(element, &value, static_cast<std::size_t>(width_bytes(type)));
}

inline long double load_part(dtype type, const std::byte* element) {
  if (type == dtype::float32) return get<float>(element);
  if (type == dtype::float64) return get<double>(element);
  if (type == dtype::float8_e8m0fnu) {
    const auto exponent = get<std::uint8_t>(element);
    return exponent == 0xFF ? not_a_number : std::ldexp(1.0L, exponent - 127);
  }
  if (const auto format = format_of(type))
    return decoded(*format, width_bits(type) == 16 ? get<std::uint16_t>(element) : get<std::uint8_t>(element));
  const std::uint64_t value = integer_at(type, element);
  return is_signed(type) ? static_cast<long double>(static_cast<std::int64_t>(value)) : static_cast<long double>(value);
}

// The truncated value in `width` bits, or the smallest integer if it does not fit (as for NaN).
inline std::int64_t truncated_signed(long double value, int width) {
  const long double limit = std::ldexp(1.0L, width - 1);
  return static_cast<std::int64_t>(value >= -limit && value < limit ? std::trunc(value) : -limit);
}
// Converts a float to an integer. In range, the result is unique. Out of range, all backends agree on this result:
// narrow types have the low bits of the int32, uint32 has those of the int64, and uint64 wraps once.
inline std::uint64_t truncated(dtype type, long double value) {
  if (width_bits(type) < 32 || type == dtype::int32) return static_cast<std::uint64_t>(truncated_signed(value, 32));
  const long double half = std::ldexp(1.0L, 63);
  if (type == dtype::uint64 && value >= half)
    return static_cast<std::uint64_t>(truncated_signed(value - half, 64)) ^ std::uint64_t{1} << 63;
  return static_cast<std::uint64_t>(truncated_signed(value, 64));
}

inline void store_part(dtype type, long double value, std::byte* element) {
  if (type == dtype::float32) return put(element, static_cast<float>(value));
  if (type == dtype::float64) return put(element, static_cast<double>(value));
  if (type == dtype::float8_e8m0fnu) return put(element, encoded_e8m0(static_cast<float>(value)));
  if (const auto format = format_of(type)) {
    const std::uint32_t pattern = encoded(*format, static_cast<float>(value));
    return width_bits(type) == 16 ? put(element, static_cast<std::uint16_t>(pattern))
                                  : put(element, static_cast<std::uint8_t>(pattern));
  }
  put_integer(type, truncated(type, value), element);
}

/// The value of one element.
struct number {
  long double real = 0, imaginary = 0;
};
inline number load(dtype type, const std::byte* element) {
  const dtype part = part_of(type);
  return {load_part(part, element), is_complex(type) ? load_part(part, element + width_bytes(part)) : 0};
}

inline void store(dtype type, const number& value, std::byte* element) {
  const dtype part = part_of(type);
  if (type == dtype::boolean) return put_integer(type, value.real != 0 || value.imaginary != 0, element);
  store_part(part, value.real, element);
  if (is_complex(type)) store_part(part, value.imaginary, element + width_bytes(part));
}

/// Converts one element to another dtype. Integers wrap; `truncated` defines floats that are out of range.
inline void convert(dtype from, const std::byte* element, dtype to, std::byte* made) {
  if (is_integral(from) && is_integral(to)) return put_integer(to, integer_at(from, element), made);
  store(to, load(from, element), made);
}

inline bool has_values(dtype type) {
  return is_integral(type) || is_floating(type) || is_complex(type);
}

inline bool is_specified(dtype from, const std::byte* element, dtype to) {
  if (!is_integral(to) || to == dtype::boolean || is_integral(from)) return true;
  const long double whole = std::trunc(load(from, element).real);
  const long double high = std::ldexp(1.0L, width_bits(to) - (is_signed(to) ? 1 : 0));
  return whole >= (is_signed(to) ? -high : 0) && whole < high;
}

inline bool same(dtype type, const std::byte* a, const std::byte* b) {
  if (!has_values(type)) return std::memcmp(a, b, static_cast<std::size_t>(width_bytes(type))) == 0;
  const dtype part = part_of(type);
  for (int p = 0; p < (is_complex(type) ? 2 : 1); ++p, a += width_bytes(part), b += width_bytes(part)) {
    if (std::isnan(load_part(part, a)) && std::isnan(load_part(part, b))) continue;
    if (std::memcmp(a, b, static_cast<std::size_t>(width_bytes(part))) != 0) return false;
  }
  return true;
}

inline std::uint64_t combined(std::uint64_t a, std::uint64_t b, bool is_signed_type, reduce_op op) {
  const bool is_less = is_signed_type ? static_cast<std::int64_t>(a) < static_cast<std::int64_t>(b) : a < b;
  switch (op) {
    case reduce_op::product:
      return a * b;
    case reduce_op::min:
      return is_less ? a : b;
    case reduce_op::max:
      return is_less ? b : a;
    case reduce_op::band:
      return a & b;
    case reduce_op::bor:
      return a | b;
    case reduce_op::bxor:
      return a ^ b;
    default:
      return a + b;
  }
}

// NaN if either side is NaN; of equal values, the first.
template <class T>
T combined_floats(T a, T b, reduce_op op) {
  if (op == reduce_op::product) return a * b;
  if (op != reduce_op::min && op != reduce_op::max) return a + b;
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  return op == reduce_op::min ? (b < a ? b : a) : (a < b ? b : a);
}

template <class T>
inline number combined_complex(const number& a, const number& b, reduce_op op) {
  const std::complex<T> x(static_cast<T>(a.real), static_cast<T>(a.imaginary)),
      y(static_cast<T>(b.real), static_cast<T>(b.imaginary));
  const std::complex<T> made = op == reduce_op::product ? x * y : x + y;
  return {made.real(), made.imag()};
}

inline void combine(dtype type, std::byte* a, const std::byte* b, reduce_op op) {
  if (is_integral(type))
    return put_integer(type, combined(integer_at(type, a), integer_at(type, b), is_signed(type), op), a);
  const number x = load(type, a), y = load(type, b);
  if (type == dtype::complex128) return store(type, combined_complex<double>(x, y, op), a);
  if (is_complex(type)) return store(type, combined_complex<float>(x, y, op), a);
  if (type == dtype::float64)
    return store(type, {combined_floats(static_cast<double>(x.real), static_cast<double>(y.real), op), 0}, a);
  store(type, {combined_floats(static_cast<float>(x.real), static_cast<float>(y.real), op), 0}, a);
}

/// Stores the identity of a reduction.
inline void store_identity(dtype type, reduce_op op, std::byte* element) {
  const std::uint64_t ones = ~std::uint64_t{0};
  if (op == reduce_op::product) return store(type, {1, 0}, element);
  if (op == reduce_op::band) return put_integer(type, ones, element);
  if (op != reduce_op::min && op != reduce_op::max) return store(type, {0, 0}, element);
  if (is_integral(type)) {
    const std::uint64_t most = is_signed(type) ? ones >> (65 - width_bits(type)) : ones;
    return put_integer(type, op == reduce_op::min ? most : ~most, element);
  }
  // A format without infinity uses its largest value.
  const auto format = format_of(type);
  const bool is_finite = format && format->kind != specials::ieee;
  const long double most = is_finite ? decoded(*format, largest_finite(*format)) : infinity;
  store(type, {op == reduce_op::min ? most : -most, 0}, element);
}

}  // namespace reference_elements
