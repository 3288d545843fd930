// SPDX-License-Identifier: Apache-2.0
// Stored elements as lane values.
module;
#include <shardmesh/assert.hpp>
#include <shardmesh/dtype.hpp>
#include <shardmesh/kernels/small_floats.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

#include "lane_access.hpp"
module shardmesh.kernels;

import :lanes;

namespace shardmesh {
namespace {

using namespace small_floats;
using lanes::load;
using lanes::store;

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

}  // namespace

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
