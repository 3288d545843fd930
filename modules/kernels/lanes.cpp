// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/assert.hpp>
#include <shardmesh/dtype.hpp>
#include <shardmesh/kernels/small_floats.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
module shardmesh.kernels;

import :lanes;

namespace shardmesh {
namespace {

using namespace small_floats;

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

// Float lanes are handled as bits, so that NaNs are not changed.
template <class Decode>
constexpr auto decode_table(Decode decode) {
  std::array<std::uint32_t, 256> table{};
  for (std::size_t i = 0; i < 256; ++i) table[i] = decode(static_cast<std::uint8_t>(i));
  return table;
}
constexpr auto e4m3fn_table = decode_table(from_float8_e4m3fn);
constexpr auto e5m2_table = decode_table(from_float8_e5m2);
constexpr auto e4m3fnuz_table = decode_table(from_float8_e4m3fnuz);
constexpr auto e5m2fnuz_table = decode_table(from_float8_e5m2fnuz);
constexpr auto e8m0fnu_table = decode_table(from_float8_e8m0fnu);

// Converts elements to lane values: `Element` is the stored type, `convert` yields the lane's type. The contiguous case
// is a separate loop, so that it vectorises. `Parts` is 2 for complex.
template <class Element, int Parts = 1, class Convert>
void load_run(const std::byte* from, std::int64_t stride, std::int64_t count, pass_buffer& out, Convert convert) {
  using value = decltype(convert(Element{}));
  constexpr auto item = static_cast<std::int64_t>(sizeof(Element)) * Parts;
  std::byte* to = out.bytes;
  const auto one = [&](std::int64_t i, const std::byte* element) {
    for (int part = 0; part < Parts; ++part)
      store<value>(to + (i * Parts + part) * static_cast<std::int64_t>(sizeof(value)),
                   convert(load<Element>(element + part * static_cast<std::int64_t>(sizeof(Element)))));
  };
  if (stride == item)
    for (std::int64_t i = 0; i < count; ++i) one(i, from + i * item);
  else
    for (std::int64_t i = 0; i < count; ++i) one(i, from + i * stride);
}

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

lane lane_of(dtype type) {
  switch (type) {
    case dtype::boolean:
    case dtype::uint8:
    case dtype::int8:
    case dtype::int16:
    case dtype::int32:
    case dtype::int64:
    case dtype::uint16:
    case dtype::uint32:
      return lane::i64;
    case dtype::uint64:
      return lane::u64;
    case dtype::float16:
    case dtype::bfloat16:
    case dtype::float32:
    case dtype::float8_e4m3fn:
    case dtype::float8_e5m2:
    case dtype::float8_e4m3fnuz:
    case dtype::float8_e5m2fnuz:
    case dtype::float8_e8m0fnu:
    case dtype::float4_e2m1fn:
    case dtype::float6_e2m3:
    case dtype::float6_e3m2:
      return lane::f32;
    case dtype::float64:
      return lane::f64;
    case dtype::complex32:
    case dtype::complex64:
      return lane::c64;
    case dtype::complex128:
      return lane::c128;
    default:
      return lane::none;
  }
}

void load_lanes(dtype type, const std::byte* from, std::int64_t stride, std::int64_t count, pass_buffer& out) {
  const auto integers = [&]<class Integer>(Integer) {
    load_run<Integer>(from, stride, count, out, [](Integer value) { return static_cast<std::int64_t>(value); });
  };
  const auto tabled = [&](const std::array<std::uint32_t, 256>& table) {
    load_run<std::uint8_t>(from, stride, count, out, [&](std::uint8_t value) { return table[value]; });
  };
  const auto keep = [](auto value) { return value; };
  switch (type) {
    case dtype::boolean:
      return load_run<std::uint8_t>(from, stride, count, out,
                                    [](std::uint8_t value) { return static_cast<std::int64_t>(value != 0); });
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
      return integers(std::uint32_t{});
    case dtype::uint64:
      return load_run<std::uint64_t>(from, stride, count, out, keep);
    case dtype::float16:
      return load_run<std::uint16_t>(from, stride, count, out, &from_float16);
    case dtype::bfloat16:
      return load_run<std::uint16_t>(from, stride, count, out, &from_bfloat16);
    case dtype::float32:
      return load_run<std::uint32_t>(from, stride, count, out, keep);
    case dtype::float64:
      return load_run<double>(from, stride, count, out, keep);
    case dtype::float8_e4m3fn:
      return tabled(e4m3fn_table);
    case dtype::float8_e5m2:
      return tabled(e5m2_table);
    case dtype::float8_e4m3fnuz:
      return tabled(e4m3fnuz_table);
    case dtype::float8_e5m2fnuz:
      return tabled(e5m2fnuz_table);
    case dtype::float8_e8m0fnu:
      return tabled(e8m0fnu_table);
    case dtype::complex32:
      return load_run<std::uint16_t, 2>(from, stride, count, out, &from_float16);
    case dtype::complex64:
      return load_run<std::uint32_t, 2>(from, stride, count, out, keep);
    case dtype::complex128:
      return load_run<double, 2>(from, stride, count, out, keep);
    default:
      SHARDMESH_ASSERT(false);
  }
}

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

void load_packed(dtype type, const std::byte* from, std::int64_t offset, std::int64_t stride, std::int64_t count,
                 pass_buffer& out) {
  const int width = bits(type);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t first = offset + i * stride;
    std::uint32_t value = 0;
    for (int b = 0; b < width; ++b) {
      const std::int64_t bit = first + b;
      value |= (std::to_integer<std::uint32_t>(from[bit >> 3]) >> (bit & 7) & 1u) << b;
    }
    std::uint32_t decoded = 0;
    if (type == dtype::float4_e2m1fn) decoded = from_finite<2, 1, 1>(value);
    if (type == dtype::float6_e2m3) decoded = from_finite<2, 3, 1>(value);
    if (type == dtype::float6_e3m2) decoded = from_finite<3, 2, 3>(value);
    store<std::uint32_t>(out.bytes + i * 4, decoded);
  }
}

}  // namespace shardmesh
