// SPDX-License-Identifier: Apache-2.0
// Sums, products, extremes, and factors of lanes, as defined by module kernels (`reduce.cppm`), and identities as
// bytes. The walk over elements is in host_tile.hpp and device_tile.hpp; `is_combinable` reports whether a dtype has an
// operation.
#pragma once
#include <shardmesh/kernels/elements.hpp>
#include <shardmesh/reduce_op.hpp>

namespace shardmesh::kernel_bodies {

// A product that no compiler fuses with a sum, so that results are the same everywhere.
SHARDMESH_KERNEL_FUNCTION inline float separate_product(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
SHARDMESH_KERNEL_FUNCTION inline double separate_product(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

// The type that computes a lane's value: float for a float_bits lane.
template <class Value>
struct computed {
  using type = Value;
};
template <>
struct computed<float_bits> {
  using type = float;
};

template <class T>
SHARDMESH_KERNEL_FUNCTION inline T added(T a, T b) {
  return a + b;
}
template <class T>
SHARDMESH_KERNEL_FUNCTION inline T multiplied(T a, T b) {
  return a * b;
}
// Signed sums and products wrap.
SHARDMESH_KERNEL_FUNCTION inline std::int64_t added(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
SHARDMESH_KERNEL_FUNCTION inline std::int64_t multiplied(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}
// NaN if either side is NaN; of equal values, the first.
template <class T>
SHARDMESH_KERNEL_FUNCTION inline T smaller(T a, T b) {
  return b < a || b != b ? b : a;
}
template <class T>
SHARDMESH_KERNEL_FUNCTION inline T larger(T a, T b) {
  return a < b || b != b ? b : a;
}

template <class T>
SHARDMESH_KERNEL_FUNCTION inline T infinite() {
  if constexpr (sizeof(T) == 4)
    return small_floats::as_float(0x7F800000u);
  else
    return T(1e300) * T(1e300);
}
template <class T>
SHARDMESH_KERNEL_FUNCTION inline bool is_infinite(T v) {
  return v == infinite<T>() || v == -infinite<T>();
}
template <class T>
SHARDMESH_KERNEL_FUNCTION inline T with_sign(T magnitude, T sign) {
  std::uint64_t wide = 0;
  std::memcpy(&wide, &sign, sizeof sign);
  return (wide >> (sizeof(T) * 8 - 1) & 1u) != 0 ? -magnitude : magnitude;
}

/// (a + bi)(c + di) as in Annex G of the C standard: infinite if a factor is, even where plain arithmetic gives NaN.
template <class T>
SHARDMESH_KERNEL_FUNCTION inline void complex_product(T a, T b, T c, T d, T& real, T& imaginary) {
  const T ac = separate_product(a, c), bd = separate_product(b, d);
  const T ad = separate_product(a, d), bc = separate_product(b, c);
  real = ac - bd;
  imaginary = ad + bc;
  if (real == real || imaginary == imaginary) return;
  bool again = false;
  if (is_infinite(a) || is_infinite(b)) {
    a = with_sign(is_infinite(a) ? T(1) : T(0), a);
    b = with_sign(is_infinite(b) ? T(1) : T(0), b);
    if (c != c) c = with_sign(T(0), c);
    if (d != d) d = with_sign(T(0), d);
    again = true;
  }
  if (is_infinite(c) || is_infinite(d)) {
    c = with_sign(is_infinite(c) ? T(1) : T(0), c);
    d = with_sign(is_infinite(d) ? T(1) : T(0), d);
    if (a != a) a = with_sign(T(0), a);
    if (b != b) b = with_sign(T(0), b);
    again = true;
  }
  if (!again && (is_infinite(ac) || is_infinite(bd) || is_infinite(ad) || is_infinite(bc))) {
    if (a != a) a = with_sign(T(0), a);
    if (b != b) b = with_sign(T(0), b);
    if (c != c) c = with_sign(T(0), c);
    if (d != d) d = with_sign(T(0), d);
    again = true;
  }
  if (!again) return;
  const T infinity = infinite<T>();
  real = infinity * (separate_product(a, c) - separate_product(b, d));
  imaginary = infinity * (separate_product(a, d) + separate_product(b, c));
}

// Replaces each value a of a buffer by `function(a, b)`.
template <class T, int Width, class Function>
SHARDMESH_KERNEL_FUNCTION inline void combine_each(lane_buffer<Width>& a, const lane_buffer<Width>& b, int count,
                                                   const Function& function) {
  for (int i = 0; i < count; ++i) {
    unsigned char* const at = a.bytes + static_cast<std::size_t>(i) * sizeof(T);
    store_as<T>(at, function(load_as<T>(at), load_as<T>(b.bytes + static_cast<std::size_t>(i) * sizeof(T))));
  }
}

template <class T, int Parts, int Width>
SHARDMESH_KERNEL_FUNCTION inline void combine_values(lane_buffer<Width>& a, const lane_buffer<Width>& b, int count,
                                                     reduce_op op) {
  constexpr bool is_integer = T(1) / T(2) == T(0);
  switch (op) {
    case reduce_op::sum:
    case reduce_op::avg:
      return combine_each<T>(a, b, count * Parts, [](T x, T y) { return added(x, y); });
    case reduce_op::product:
      if constexpr (Parts == 1) {
        return combine_each<T>(a, b, count, [](T x, T y) { return multiplied(x, y); });
      } else {
        for (int i = 0; i < count; ++i) {
          unsigned char* const at = a.bytes + static_cast<std::size_t>(2 * i) * sizeof(T);
          const unsigned char* const other = b.bytes + static_cast<std::size_t>(2 * i) * sizeof(T);
          T real, imaginary;
          complex_product(load_as<T>(at), load_as<T>(at + sizeof(T)), load_as<T>(other), load_as<T>(other + sizeof(T)),
                          real, imaginary);
          store_as<T>(at, real);
          store_as<T>(at + sizeof(T), imaginary);
        }
        return;
      }
    case reduce_op::min:
      return combine_each<T>(a, b, count * Parts, [](T x, T y) { return smaller(x, y); });
    case reduce_op::max:
      return combine_each<T>(a, b, count * Parts, [](T x, T y) { return larger(x, y); });
    default:
      break;
  }
  if constexpr (is_integer) {
    if (op == reduce_op::band) return combine_each<T>(a, b, count, [](T x, T y) { return x & y; });
    if (op == reduce_op::bor) return combine_each<T>(a, b, count, [](T x, T y) { return x | y; });
    if (op == reduce_op::bxor) return combine_each<T>(a, b, count, [](T x, T y) { return x ^ y; });
  }
}

/// a = a op b, lane by lane.
template <int Width>
SHARDMESH_KERNEL_FUNCTION inline void combine_lanes(lane in, lane_buffer<Width>& a, const lane_buffer<Width>& b,
                                                    int count, reduce_op op) {
  with_lane(in, [&](auto value, auto parts) {
    using computed_type = typename computed<decltype(value)>::type;
    combine_values<computed_type, decltype(parts)::value>(a, b, count, op);
  });
}

/// Multiplies or divides floats by a factor: computed in double and rounded once more to the lane.
template <int Width>
SHARDMESH_KERNEL_FUNCTION inline void change_lanes(lane in, lane_buffer<Width>& a, int count, bool divides,
                                                   double factor) {
  with_lane(in, [&](auto value, auto parts) {
    using T = typename computed<decltype(value)>::type;
    for (int i = 0; i < count * decltype(parts)::value; ++i) {
      unsigned char* const at = a.bytes + static_cast<std::size_t>(i) * sizeof(T);
      const auto wide = static_cast<double>(load_as<T>(at));
      store_as<T>(at, static_cast<T>(divides ? wide / factor : wide * factor));
    }
  });
}

/// Writes the identity of a reduction as an element of `type`, up to 16 bytes. Runs on the host, where tables are made.
inline void write_identity(dtype type, reduce_op op, std::byte* element_at) {
  const lane in = lane_of(type);
  lane_buffer<1> one{};
  const bool is_integer = in == lane::i64 || in == lane::u64;
  const bool is_signed = type == dtype::int8 || type == dtype::int16 || type == dtype::int32 || type == dtype::int64;
  const auto put_integer = [&](std::uint64_t value) {
    store_as<std::uint64_t>(one.bytes, value);
    store_lanes(type, lane::u64, one, element_at, 16, 1);
  };
  const auto put_float = [&](double value) {
    store_as<double>(one.bytes, value);
    store_lanes(type, lane::f64, one, element_at, 16, 1);
  };
  if (op == reduce_op::product) return put_float(1);
  if (op == reduce_op::band) return put_integer(~std::uint64_t{0});
  if (op != reduce_op::min && op != reduce_op::max) return put_float(0);
  if (is_integer) {
    const auto width = static_cast<int>(type == dtype::boolean ? 1 : 8 * element_bytes(type));
    const std::uint64_t most = ~std::uint64_t{0} >> (64 - width + (is_signed ? 1 : 0));
    const std::uint64_t least = is_signed ? ~most : 0;
    return put_integer(op == reduce_op::min ? most : least);
  }
  // A format without infinity uses its largest value.
  double largest = 1e300 * 1e300;
  if (type == dtype::float8_e4m3fn) largest = 448;
  if (type == dtype::float8_e4m3fnuz) largest = 240;
  if (type == dtype::float8_e5m2fnuz) largest = 57344;
  put_float(op == reduce_op::min ? largest : -largest);
}

}  // namespace shardmesh::kernel_bodies
