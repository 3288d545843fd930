// SPDX-License-Identifier: Apache-2.0
// Lane values as stored elements.
module;
#include <shardmesh/assert.hpp>
#include <shardmesh/dtype.hpp>
#include <shardmesh/kernels/small_floats.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "lane_access.hpp"
module shardmesh.kernels;

import :lanes;

namespace shardmesh {
namespace {

using namespace small_floats;
using lanes::load;
using lanes::store;

template <class Element>
void store_run(std::byte* to, std::int64_t stride, std::int64_t count, auto element_of) {
  constexpr auto item = static_cast<std::int64_t>(sizeof(Element));
  if (stride == item)
    for (std::int64_t i = 0; i < count; ++i) store<Element>(to + i * item, element_of(i));
  else
    for (std::int64_t i = 0; i < count; ++i) store<Element>(to + i * stride, element_of(i));
}

// Truncates as the cvttss2si family does: a value that does not fit gives the smallest integer. This avoids undefined
// conversions. Unsigned types subtract half their range first; narrow ones go through 32 bits. Values out of range,
// which PyTorch leaves undefined, then mostly agree with its x86 builds.
template <class Integer, class Float>
Integer truncated(Float value) {
  constexpr Float limit = sizeof(Integer) == 8 ? Float(9223372036854775808.0) : Float(2147483648.0);
  const bool fits = value >= -limit && value < limit;
  const auto whole = static_cast<Integer>(fits ? value : Float(0));
  return fits ? whole : std::numeric_limits<Integer>::min();
}
template <class Integer, class Float>
Integer to_integer(Float value) {
  if constexpr (sizeof(Integer) < 4) {
    return static_cast<Integer>(truncated<std::int32_t>(value));
  } else if constexpr (std::is_signed_v<Integer>) {
    return truncated<Integer>(value);
  } else {
    using Signed = std::make_signed_t<Integer>;
    constexpr Integer half = Integer(1) << (sizeof(Integer) * 8 - 1);
    constexpr auto limit = static_cast<Float>(half);
    return value >= limit ? static_cast<Integer>(truncated<Signed>(value - limit)) ^ half
                          : static_cast<Integer>(truncated<Signed>(value));
  }
}

// Converts a value outside the ranges of int32 and uint32 to uint32: the low half of the 64-bit integer, as in the
// device kernels (shardmesh/kernels/elements.hpp). Within those ranges, `to_integer` gives the same result and
// vectorises.
template <class Float>
std::uint32_t low_half(Float value) {
  return static_cast<std::uint32_t>(truncated<std::int64_t>(value));
}
template <class Float>
bool fits_32_bits(Float value) {
  return value >= Float(-2147483648.0) && value < Float(4294967296.0);
}

// A lane's value as float32 bits. PyTorch reaches every small float through float32.
std::uint32_t float_bits(std::uint32_t bits) {
  return bits;
}
std::uint32_t float_bits(double value) {
  return as_bits(static_cast<float>(value));
}
std::uint32_t float_bits(std::int64_t value) {
  return as_bits(static_cast<float>(value));
}
std::uint32_t float_bits(std::uint64_t value) {
  return as_bits(static_cast<float>(value));
}
double double_of(std::uint32_t bits) {
  return static_cast<double>(as_float(bits));
}
double double_of(double value) {
  return value;
}
double double_of(std::int64_t value) {
  return static_cast<double>(value);
}
double double_of(std::uint64_t value) {
  return static_cast<double>(value);
}
bool is_true(std::uint32_t bits) {
  return (bits & 0x7FFFFFFFu) != 0;
}
bool is_true(double value) {
  return value != 0;
}
bool is_true(std::int64_t value) {
  return value != 0;
}
bool is_true(std::uint64_t value) {
  return value != 0;
}
template <class Integer>
Integer integer_of(std::uint32_t bits) {
  return to_integer<Integer>(as_float(bits));
}
template <class Integer>
Integer integer_of(double value) {
  return to_integer<Integer>(value);
}
template <class Integer>
Integer integer_of(std::int64_t value) {
  return static_cast<Integer>(value);
}
template <class Integer>
Integer integer_of(std::uint64_t value) {
  return static_cast<Integer>(value);
}

template <class Part>
struct complex_of {
  Part real, imaginary;
};

// `Value` is the lane's component (std::uint32_t stands for float32 bits). `Parts` is 2 if the lane is complex.
template <class Value, int Parts>
void store_as(dtype type, dtype from, const pass_buffer& in, std::byte* to, std::int64_t stride, std::int64_t count) {
  const auto part = [&](std::int64_t i, int which) {
    return load<Value>(in.bytes + (i * Parts + which) * static_cast<std::int64_t>(sizeof(Value)));
  };
  const auto real = [&](std::int64_t i) { return part(i, 0); };
  const auto imaginary = [&](std::int64_t i) { return Parts == 2 ? part(i, Parts - 1) : Value{0}; };
  const auto integers = [&]<class Integer>(Integer) {
    store_run<Integer>(to, stride, count, [&](std::int64_t i) { return integer_of<Integer>(real(i)); });
  };
  const auto small = [&]<class Bits>(Bits (*convert)(std::uint32_t)) {
    store_run<Bits>(to, stride, count, [&](std::int64_t i) { return convert(float_bits(real(i))); });
  };
  const auto unsigned_32 = [&](auto to_float) {
    int misfits = 0;
    for (std::int64_t i = 0; i < count; ++i) misfits |= fits_32_bits(to_float(real(i))) ? 0 : 1;
    if (misfits == 0) return integers(std::uint32_t{});
    store_run<std::uint32_t>(to, stride, count, [&](std::int64_t i) { return low_half(to_float(real(i))); });
  };
  switch (type) {
    case dtype::boolean:
      return store_run<std::uint8_t>(to, stride, count, [&](std::int64_t i) {
        return static_cast<std::uint8_t>(is_true(real(i)) || is_true(imaginary(i)));
      });
    case dtype::uint8:
      return integers(std::uint8_t{});
    case dtype::int8:
      return integers(std::int8_t{});
    case dtype::int16:
      return integers(std::int16_t{});
    case dtype::int32:
      return integers(std::int32_t{});
    case dtype::int64:
      return integers(std::int64_t{});
    case dtype::uint16:
      return integers(std::uint16_t{});
    case dtype::uint32:
      if constexpr (std::is_same_v<Value, std::uint32_t>)
        return unsigned_32([](std::uint32_t bits) { return as_float(bits); });
      else if constexpr (std::is_same_v<Value, double>)
        return unsigned_32([](double value) { return value; });
      else
        return integers(std::uint32_t{});
    case dtype::uint64:
      return integers(std::uint64_t{});
    case dtype::float16:
      return small(&to_float16);
    case dtype::bfloat16: {
      const std::uint16_t nan = from == dtype::float32 || from == dtype::float64 ? 0xFFFF : 0x7FC0;
      return store_run<std::uint16_t>(to, stride, count,
                                      [&](std::int64_t i) { return to_bfloat16(float_bits(real(i)), nan); });
    }
    case dtype::float32:
      return store_run<std::uint32_t>(to, stride, count, [&](std::int64_t i) { return float_bits(real(i)); });
    case dtype::float64:
      return store_run<double>(to, stride, count, [&](std::int64_t i) { return double_of(real(i)); });
    case dtype::float8_e4m3fn:
      return small(&to_float8_e4m3fn);
    case dtype::float8_e5m2:
      return small(&to_float8_e5m2);
    case dtype::float8_e4m3fnuz:
      return small(&to_float8_e4m3fnuz);
    case dtype::float8_e5m2fnuz:
      return small(&to_float8_e5m2fnuz);
    case dtype::float8_e8m0fnu:
      return small(&to_float8_e8m0fnu);
    case dtype::complex32:
      return store_run<complex_of<std::uint16_t>>(to, stride, count, [&](std::int64_t i) {
        return complex_of<std::uint16_t>{to_float16(float_bits(real(i))), to_float16(float_bits(imaginary(i)))};
      });
    case dtype::complex64:
      return store_run<complex_of<std::uint32_t>>(to, stride, count, [&](std::int64_t i) {
        return complex_of<std::uint32_t>{float_bits(real(i)), float_bits(imaginary(i))};
      });
    case dtype::complex128:
      return store_run<complex_of<double>>(to, stride, count, [&](std::int64_t i) {
        return complex_of<double>{double_of(real(i)), double_of(imaginary(i))};
      });
    default:
      SHARDMESH_ASSERT(false);
  }
}

}  // namespace

void store_lanes(dtype type, dtype from, const pass_buffer& in, std::byte* to, std::int64_t stride,
                 std::int64_t count) {
  switch (lane_of(from)) {
    case lane::i64:
      return store_as<std::int64_t, 1>(type, from, in, to, stride, count);
    case lane::u64:
      return store_as<std::uint64_t, 1>(type, from, in, to, stride, count);
    case lane::f32:
      return store_as<std::uint32_t, 1>(type, from, in, to, stride, count);
    case lane::f64:
      return store_as<double, 1>(type, from, in, to, stride, count);
    case lane::c64:
      return store_as<std::uint32_t, 2>(type, from, in, to, stride, count);
    case lane::c128:
      return store_as<double, 2>(type, from, in, to, stride, count);
    case lane::none:
      SHARDMESH_ASSERT(false);
  }
}

}  // namespace shardmesh
