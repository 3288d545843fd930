// SPDX-License-Identifier: Apache-2.0
// Separate loops for the dtype pairs that models use: contiguous, without a buffer between load and store. All other
// pairs go through lanes (elements.hpp).
#pragma once
#include <shardmesh/kernels/arithmetic.hpp>
#include <shardmesh/kernels/batch.hpp>

namespace shardmesh::kernel_bodies {

/// to = from, for two floats of up to 32 bits.
template <class To, class From>
struct direct_copy {
  using to = typename To::stored;
  using from = typename From::stored;
  static constexpr bool reads_to = false;
  SHARDMESH_KERNEL_FUNCTION static to apply(to, from given) { return To::store(From::load(given)); }
};

template <class A, class B>
struct same_format {
  static constexpr bool value = false;
};
template <class A>
struct same_format<A, A> {
  static constexpr bool value = true;
};
/// to = to + from, for floats of up to 32 bits. `from` is first rounded to the dtype of `to`, as everywhere.
template <class To, class From>
struct direct_sum {
  using to = typename To::stored;
  using from = typename From::stored;
  static constexpr bool reads_to = true;
  SHARDMESH_KERNEL_FUNCTION static float_bits rounded(from given) {
    if constexpr (same_format<To, From>::value)
      return From::load(given);
    else
      return To::load(To::store(From::load(given)));
  }
  SHARDMESH_KERNEL_FUNCTION static to apply(to held, from given) {
    const float a = small_floats::as_float(To::load(held).bits);
    const float b = small_floats::as_float(rounded(given).bits);
    return To::store(float_bits{small_floats::as_bits(a + b)});
  }
};
template <class Number>
struct direct_number_sum {
  using to = Number;
  using from = Number;
  static constexpr bool reads_to = true;
  SHARDMESH_KERNEL_FUNCTION static to apply(to held, from given) { return added(held, given); }
};

/// Calls `visit` with the element function of the direct loop, if there is one. Returns whether there is.
template <class Visit>
SHARDMESH_KERNEL_FUNCTION inline bool with_direct(batch_op op, reduce_op reduction, dtype to, dtype from,
                                                  const Visit& visit) {
  using f32 = float32_format;
  using f16 = float16_format;
  using bf16 = bfloat16_format;
  constexpr dtype single = dtype::float32, half = dtype::float16, brain = dtype::bfloat16;
  const auto done = [&](auto function) {
    visit(function);
    return true;
  };
  if (op == batch_op::copy) {
    if (to == brain && from == single) return done(direct_copy<bf16, f32>{});
    if (to == single && from == brain) return done(direct_copy<f32, bf16>{});
    if (to == half && from == single) return done(direct_copy<f16, f32>{});
    if (to == single && from == half) return done(direct_copy<f32, f16>{});
    return false;
  }
  if (op != batch_op::accumulate || (reduction != reduce_op::sum && reduction != reduce_op::avg)) return false;
  if (to == single && from == single) return done(direct_sum<f32, f32>{});
  if (to == single && from == brain) return done(direct_sum<f32, bf16>{});
  if (to == single && from == half) return done(direct_sum<f32, f16>{});
  if (to == brain && from == brain) return done(direct_sum<bf16, bf16>{});
  if (to == half && from == half) return done(direct_sum<f16, f16>{});
  if (to == dtype::float64 && from == dtype::float64) return done(direct_number_sum<double>{});
  if (to == dtype::int64 && from == dtype::int64) return done(direct_number_sum<std::int64_t>{});
  return false;
}

/// As `with_direct`, for copies between 8-bit floats and 16- or 32-bit floats. For hosts, where these loops vectorise.
/// Thirty pairs are too much code for a device's kernel.
template <class Visit>
inline bool with_direct_float8(dtype to, dtype from, const Visit& visit) {
  const auto with_wide = [](dtype type, const auto& use) {
    if (type == dtype::float32) return use(float32_format{});
    if (type == dtype::bfloat16) return use(bfloat16_format{});
    if (type == dtype::float16) return use(float16_format{});
    return false;
  };
  const auto with_float8 = [](dtype type, const auto& use) {
    if (type == dtype::float8_e4m3fn) return use(float8_e4m3fn_format{});
    if (type == dtype::float8_e5m2) return use(float8_e5m2_format{});
    if (type == dtype::float8_e4m3fnuz) return use(float8_e4m3fnuz_format{});
    if (type == dtype::float8_e5m2fnuz) return use(float8_e5m2fnuz_format{});
    if (type == dtype::float8_e8m0fnu) return use(float8_e8m0fnu_format{});
    return false;
  };
  return with_float8(to,
                     [&](auto small) {
                       return with_wide(from, [&](auto wide) {
                         return visit(direct_copy<decltype(small), decltype(wide)>{}), true;
                       });
                     }) ||
         with_float8(from, [&](auto small) {
           return with_wide(to, [&](auto wide) { return visit(direct_copy<decltype(wide), decltype(small)>{}), true; });
         });
}

}  // namespace shardmesh::kernel_bodies
