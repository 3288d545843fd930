// SPDX-License-Identifier: Apache-2.0
// Loads elements of every dtype into six lanes, and stores them with PyTorch's rounding: twenty loads and 120 stores
// instead of 400 conversions. A NaN may become any NaN. Arithmetic is in arithmetic.hpp; the walk over elements is in
// host_tile.hpp and device_tile.hpp. The host's tuned version, with PyTorch's NaN payloads, is
// modules/kernels/lanes.cpp.
#pragma once
#include <shardmesh/dtype.hpp>
#include <shardmesh/kernels/function.hpp>
#include <shardmesh/kernels/small_floats.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace shardmesh::kernel_bodies {

/// The type in which values of a dtype are computed; complex lanes are pairs. Only uint64 is u64. Other integers and
/// bool are i64. Floats up to 32 bits are f32, kept as bits until something is computed.
enum class lane : std::uint8_t { none, i64, u64, f32, f64, c64, c128 };

/// A 32-bit float as its bits; lanes hold floats in this form.
struct float_bits {
  std::uint32_t bits;
};

// --- one value to another type; floats reach everything small through float32, as in PyTorch ---

// Truncates as the cvttss2si family does, without undefined conversions: a value that does not fit gives the smallest
// integer.
template <class Integer, class Float>
SHARDMESH_KERNEL_FUNCTION inline Integer truncated(Float value) {
  constexpr Float limit = sizeof(Integer) == 8 ? Float(9223372036854775808.0) : Float(2147483648.0);
  constexpr auto smallest = static_cast<Integer>(std::uint64_t{1} << (sizeof(Integer) * 8 - 1));
  const bool fits = value >= -limit && value < limit;
  const auto whole = static_cast<Integer>(fits ? value : Float(0));
  return fits ? whole : smallest;
}

template <class Integer>
struct integer_traits {
  static constexpr bool is_signed = Integer(-1) < Integer(0);
};

template <class Integer, class Float>
SHARDMESH_KERNEL_FUNCTION inline Integer float_to_integer(Float value) {
  if constexpr (sizeof(Integer) < 4) {
    return static_cast<Integer>(truncated<std::int32_t>(value));
  } else if constexpr (sizeof(Integer) == 4) {
    if constexpr (integer_traits<Integer>::is_signed)
      return truncated<std::int32_t>(value);
    else
      return static_cast<std::uint32_t>(truncated<std::int64_t>(value));
  } else if constexpr (integer_traits<Integer>::is_signed) {
    return truncated<std::int64_t>(value);
  } else {
    constexpr auto half = Float(9223372036854775808.0);
    return value >= half ? static_cast<std::uint64_t>(truncated<std::int64_t>(value - half)) ^ (std::uint64_t{1} << 63)
                         : static_cast<std::uint64_t>(truncated<std::int64_t>(value));
  }
}

SHARDMESH_KERNEL_FUNCTION inline std::uint32_t bits_of(float_bits v) {
  return v.bits;
}
SHARDMESH_KERNEL_FUNCTION inline std::uint32_t bits_of(double v) {
  return small_floats::as_bits(static_cast<float>(v));
}
SHARDMESH_KERNEL_FUNCTION inline std::uint32_t bits_of(std::int64_t v) {
  return small_floats::as_bits(static_cast<float>(v));
}
SHARDMESH_KERNEL_FUNCTION inline std::uint32_t bits_of(std::uint64_t v) {
  return small_floats::as_bits(static_cast<float>(v));
}
template <class Value>
SHARDMESH_KERNEL_FUNCTION inline double double_of(Value v) {
  return static_cast<double>(v);
}
SHARDMESH_KERNEL_FUNCTION inline double double_of(float_bits v) {
  return static_cast<double>(small_floats::as_float(v.bits));
}
template <class Value>
SHARDMESH_KERNEL_FUNCTION inline bool is_true(Value v) {
  return v != Value(0);
}
SHARDMESH_KERNEL_FUNCTION inline bool is_true(float_bits v) {
  return (v.bits & 0x7FFFFFFFu) != 0;
}
template <class Integer, class Value>
SHARDMESH_KERNEL_FUNCTION inline Integer integer_of(Value v) {
  return static_cast<Integer>(v);
}
template <class Integer>
SHARDMESH_KERNEL_FUNCTION inline Integer integer_of(double v) {
  return float_to_integer<Integer>(v);
}
template <class Integer>
SHARDMESH_KERNEL_FUNCTION inline Integer integer_of(float_bits v) {
  return float_to_integer<Integer>(small_floats::as_float(v.bits));
}

// --- formats: how one part of an element is stored ---

template <class Stored_, class Value_>
struct plain_format {
  using stored = Stored_;
  using value = Value_;
  static constexpr bool is_truth = false;
  SHARDMESH_KERNEL_FUNCTION static value load(stored s) { return static_cast<value>(s); }
  template <class V>
  SHARDMESH_KERNEL_FUNCTION static stored store(V v) {
    return integer_of<stored>(v);
  }
};
struct boolean_format {
  using stored = std::uint8_t;
  using value = std::int64_t;
  static constexpr bool is_truth = true;  // a complex value is true if either part is
  SHARDMESH_KERNEL_FUNCTION static value load(stored s) { return s != 0; }
  template <class V>
  SHARDMESH_KERNEL_FUNCTION static stored store(V v) {
    return is_true(v) ? 1 : 0;
  }
};
struct float64_format {
  using stored = double;
  using value = double;
  static constexpr bool is_truth = false;
  SHARDMESH_KERNEL_FUNCTION static value load(stored s) { return s; }
  template <class V>
  SHARDMESH_KERNEL_FUNCTION static stored store(V v) {
    return double_of(v);
  }
};
struct float32_format {
  using stored = std::uint32_t;
  using value = float_bits;
  static constexpr bool is_truth = false;
  SHARDMESH_KERNEL_FUNCTION static value load(stored s) { return {s}; }
  template <class V>
  SHARDMESH_KERNEL_FUNCTION static stored store(V v) {
    return bits_of(v);
  }
};
#define SHARDMESH_SMALL_FORMAT(format, bits, from, to)      \
  struct format {                                           \
    using stored = bits;                                    \
    using value = float_bits;                               \
    static constexpr bool is_truth = false;                 \
    SHARDMESH_KERNEL_FUNCTION static value load(stored s) { \
      return {small_floats::from(s)};                       \
    }                                                       \
    template <class V>                                      \
    SHARDMESH_KERNEL_FUNCTION static stored store(V v) {    \
      return small_floats::to(bits_of(v));                  \
    }                                                       \
  }
SHARDMESH_SMALL_FORMAT(float8_e4m3fn_format, std::uint8_t, from_float8_e4m3fn, to_float8_e4m3fn);
SHARDMESH_SMALL_FORMAT(float8_e5m2_format, std::uint8_t, from_float8_e5m2, to_float8_e5m2);
SHARDMESH_SMALL_FORMAT(float8_e4m3fnuz_format, std::uint8_t, from_float8_e4m3fnuz, to_float8_e4m3fnuz);
SHARDMESH_SMALL_FORMAT(float8_e5m2fnuz_format, std::uint8_t, from_float8_e5m2fnuz, to_float8_e5m2fnuz);
SHARDMESH_SMALL_FORMAT(float8_e8m0fnu_format, std::uint8_t, from_float8_e8m0fnu, to_float8_e8m0fnu);
#undef SHARDMESH_SMALL_FORMAT
// One instruction converts eight elements if the compiler may use F16C; the values are the same.
struct float16_format {
  using stored = std::uint16_t;
  using value = float_bits;
  static constexpr bool is_truth = false;
  SHARDMESH_KERNEL_FUNCTION static value load(stored s) {
#if defined(__F16C__) && defined(__FLT16_MANT_DIG__) && !defined(SHARDMESH_ON_DEVICE)
    _Float16 half;
    std::memcpy(&half, &s, sizeof half);
    return {small_floats::as_bits(static_cast<float>(half))};
#else
    return {small_floats::from_float16(s)};
#endif
  }
  template <class V>
  SHARDMESH_KERNEL_FUNCTION static stored store(V v) {
#if defined(__F16C__) && defined(__FLT16_MANT_DIG__) && !defined(SHARDMESH_ON_DEVICE)
    const auto half = static_cast<_Float16>(small_floats::as_float(bits_of(v)));
    stored bits;
    std::memcpy(&bits, &half, sizeof bits);
    return bits;
#else
    return small_floats::to_float16(bits_of(v));
#endif
  }
};
struct bfloat16_format {
  using stored = std::uint16_t;
  using value = float_bits;
  static constexpr bool is_truth = false;
  SHARDMESH_KERNEL_FUNCTION static value load(stored s) { return {small_floats::from_bfloat16(s)}; }
  template <class V>
  SHARDMESH_KERNEL_FUNCTION static stored store(V v) {
    return small_floats::to_bfloat16(bits_of(v), 0x7FC0);
  }
};

/// An element of `Parts` stored parts of one format, the real part first.
template <class Format_, int Parts_, lane Lane>
struct element {
  using format = Format_;
  using stored = typename Format_::stored;
  using value = typename Format_::value;
  static constexpr int parts = Parts_;
  static constexpr lane in = Lane;
  static constexpr std::int64_t bytes = static_cast<std::int64_t>(sizeof(stored)) * Parts_;
};

/// Calls `visit` with the element<...> of the dtype; does nothing for dtypes without values.
template <class Visit>
SHARDMESH_KERNEL_FUNCTION inline void with_element(dtype type, const Visit& visit) {
  switch (type) {
    case dtype::boolean:
      return visit(element<boolean_format, 1, lane::i64>{});
    case dtype::uint8:
      return visit(element<plain_format<std::uint8_t, std::int64_t>, 1, lane::i64>{});
    case dtype::int8:
      return visit(element<plain_format<std::int8_t, std::int64_t>, 1, lane::i64>{});
    case dtype::int16:
      return visit(element<plain_format<std::int16_t, std::int64_t>, 1, lane::i64>{});
    case dtype::int32:
      return visit(element<plain_format<std::int32_t, std::int64_t>, 1, lane::i64>{});
    case dtype::int64:
      return visit(element<plain_format<std::int64_t, std::int64_t>, 1, lane::i64>{});
    case dtype::uint16:
      return visit(element<plain_format<std::uint16_t, std::int64_t>, 1, lane::i64>{});
    case dtype::uint32:
      return visit(element<plain_format<std::uint32_t, std::int64_t>, 1, lane::i64>{});
    case dtype::uint64:
      return visit(element<plain_format<std::uint64_t, std::uint64_t>, 1, lane::u64>{});
    case dtype::float16:
      return visit(element<float16_format, 1, lane::f32>{});
    case dtype::bfloat16:
      return visit(element<bfloat16_format, 1, lane::f32>{});
    case dtype::float32:
      return visit(element<float32_format, 1, lane::f32>{});
    case dtype::float64:
      return visit(element<float64_format, 1, lane::f64>{});
    case dtype::complex32:
      return visit(element<float16_format, 2, lane::c64>{});
    case dtype::complex64:
      return visit(element<float32_format, 2, lane::c64>{});
    case dtype::complex128:
      return visit(element<float64_format, 2, lane::c128>{});
    case dtype::float8_e4m3fn:
      return visit(element<float8_e4m3fn_format, 1, lane::f32>{});
    case dtype::float8_e5m2:
      return visit(element<float8_e5m2_format, 1, lane::f32>{});
    case dtype::float8_e4m3fnuz:
      return visit(element<float8_e4m3fnuz_format, 1, lane::f32>{});
    case dtype::float8_e5m2fnuz:
      return visit(element<float8_e5m2fnuz_format, 1, lane::f32>{});
    case dtype::float8_e8m0fnu:
      return visit(element<float8_e8m0fnu_format, 1, lane::f32>{});
    default:
      return;
  }
}

/// The lane of a dtype; none if it has no values of whole bytes.
SHARDMESH_KERNEL_FUNCTION inline lane lane_of(dtype type) {
  lane found = lane::none;
  with_element(type, [&](auto e) { found = decltype(e)::in; });
  return found;
}

/// Bytes of an element; 0 for sub-byte dtypes.
SHARDMESH_KERNEL_FUNCTION inline std::int64_t element_bytes(dtype type) {
  switch (type) {
    case dtype::float8_e4m3:
    case dtype::float4_e2m1fn_x2:
    case dtype::bits8:
    case dtype::bits1x8:
    case dtype::bits2x4:
    case dtype::bits4x2:
      return 1;
    case dtype::bits16:
      return 2;
    default:
      break;
  }
  std::int64_t bytes = 0;
  with_element(type, [&](auto e) { bytes = decltype(e)::bytes; });
  return bytes;
}

// --- runs of lanes ---

/// Values of up to `Width` elements in any lane. A host uses 256: they stay in the L1 cache, and loops over them
/// vectorise. A device's thread uses one, in registers.
template <int Width>
struct lane_buffer {
  alignas(16) unsigned char bytes[Width * 16];
};

template <class T>
SHARDMESH_KERNEL_FUNCTION inline T load_as(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
SHARDMESH_KERNEL_FUNCTION inline void store_as(void* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

template <class Element, int Width>
SHARDMESH_KERNEL_FUNCTION inline void load_elements(const std::byte* from, std::int64_t stride, int count,
                                                    lane_buffer<Width>& out) {
  using stored = typename Element::stored;
  using value = typename Element::value;
  const auto one = [&](int i, const std::byte* at) {
    for (int p = 0; p < Element::parts; ++p)
      store_as<value>(out.bytes + static_cast<std::size_t>(i * Element::parts + p) * sizeof(value),
                      Element::format::load(load_as<stored>(at + static_cast<std::size_t>(p) * sizeof(stored))));
  };
  if (stride == Element::bytes)  // a separate loop, so that it vectorises
    for (int i = 0; i < count; ++i) one(i, from + i * Element::bytes);
  else
    for (int i = 0; i < count; ++i) one(i, from + i * stride);
}

/// Loads `count` (at most Width) elements that lie `stride` bytes apart.
template <int Width>
SHARDMESH_KERNEL_FUNCTION inline void load_lanes(dtype type, const std::byte* from, std::int64_t stride, int count,
                                                 lane_buffer<Width>& out) {
  with_element(type, [&](auto e) { load_elements<decltype(e)>(from, stride, count, out); });
}

// Stores elements from a lane of `Value`s, with `Parts` of them per element.
template <class Element, class Value, int Parts, int Width>
SHARDMESH_KERNEL_FUNCTION inline void store_elements(const lane_buffer<Width>& in, std::byte* to, std::int64_t stride,
                                                     int count) {
  using stored = typename Element::stored;
  using format = typename Element::format;
  const auto one = [&](int i, std::byte* at) {
    const auto part = [&](int p) {
      return load_as<Value>(in.bytes + static_cast<std::size_t>(i * Parts + p) * sizeof(Value));
    };
    stored real = format::store(part(0));
    if constexpr (Parts == 2 && format::is_truth) real = is_true(part(0)) || is_true(part(1)) ? 1 : 0;
    store_as<stored>(at, real);
    if constexpr (Element::parts == 2) {
      if constexpr (Parts == 2)
        store_as<stored>(at + sizeof(stored), format::store(part(1)));
      else
        store_as<stored>(at + sizeof(stored), stored(0));
    }
  };
  if (stride == Element::bytes)
    for (int i = 0; i < count; ++i) one(i, to + i * Element::bytes);
  else
    for (int i = 0; i < count; ++i) one(i, to + i * stride);
}

/// A number of parts as a type.
template <int Parts>
struct parts_of {
  static constexpr int value = Parts;
};
/// Calls `visit(value, parts)` with a value of the lane's type, and its number of parts as a `parts_of`.
template <class Visit>
SHARDMESH_KERNEL_FUNCTION inline void with_lane(lane in, const Visit& visit) {
  switch (in) {
    case lane::i64:
      return visit(std::int64_t{}, parts_of<1>{});
    case lane::u64:
      return visit(std::uint64_t{}, parts_of<1>{});
    case lane::f32:
      return visit(float_bits{}, parts_of<1>{});
    case lane::f64:
      return visit(double{}, parts_of<1>{});
    case lane::c64:
      return visit(float_bits{}, parts_of<2>{});
    case lane::c128:
      return visit(double{}, parts_of<2>{});
    case lane::none:
      return;
  }
}

/// Stores lanes as elements of `type`.
template <int Width>
SHARDMESH_KERNEL_FUNCTION inline void store_lanes(dtype type, lane in, const lane_buffer<Width>& from, std::byte* to,
                                                  std::int64_t stride, int count) {
  with_lane(in, [&](auto value, auto parts) {
    with_element(type, [&](auto e) {
      store_elements<decltype(e), decltype(value), decltype(parts)::value>(from, to, stride, count);
    });
  });
}

}  // namespace shardmesh::kernel_bodies
