// SPDX-License-Identifier: Apache-2.0
// Tests floats that an integer cannot hold. PyTorch's result depends on the element's position in the tensor and on the
// processor; all our backends give one result. `backend_property` compares other backends with the same reference.
#include <catch2/catch_test_macros.hpp>
#include <shardmesh/tensor_view.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

import shardmesh.kernels;

using namespace shardmesh;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

// All values are exact in float32.
const std::vector<double> values{
    -1,      -1.5,   -2147483648.0, -2147483904.0, 4294967296.0, 4294971392.0, 1e10, -1e10, 0x1p62,     0x1p63,
    -0x1p63, 0x1p64, -0x1p65,       0x1.8p63,      0x1p80,       not_a_number, inf,  -inf,  2147483648, 4294967040.0};

template <class Float, class Integer>
std::vector<Integer> converted(dtype from, dtype to, std::int64_t stride) {
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<Float> source(values.size() * static_cast<std::size_t>(stride));
  for (std::size_t i = 0; i < values.size(); ++i)
    source[i * static_cast<std::size_t>(stride)] = static_cast<Float>(values[i]);
  std::vector<Integer> made(values.size());
  REQUIRE(copy({reinterpret_cast<std::byte*>(made.data()), to, {}, {count}, {1}},
               {reinterpret_cast<const std::byte*>(source.data()), from, {}, {count}, {stride}}));
  return made;
}

template <class Integer>
void check(dtype to, const std::vector<Integer>& expected) {
  for (const std::int64_t stride : {1, 3}) {
    CHECK(converted<float, Integer>(dtype::float32, to, stride) == expected);
    CHECK(converted<double, Integer>(dtype::float64, to, stride) == expected);
  }
}

}  // namespace

TEST_CASE("a float beyond uint32 has the low half of the 64-bit integer") {
  check<std::uint32_t>(dtype::uint32,
                       {4294967295, 4294967295, 2147483648, 2147483392, 0, 4096, 1410065408, 2884901888, 0, 0, 0, 0,
                        0,          0,          0,          0,          0, 0,    2147483648, 4294967040});
}

TEST_CASE("a float beyond another integer is the smallest one of 32 or 64 bits") {
  constexpr std::int32_t least = std::numeric_limits<std::int32_t>::min();
  check<std::int32_t>(dtype::int32, {-1,    -1,    least, least, least, least, least, least, least, least,
                                     least, least, least, least, least, least, least, least, least, least});
  check<std::uint8_t>(dtype::uint8, {255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  constexpr std::uint64_t half = std::uint64_t{1} << 63;
  check<std::uint64_t>(dtype::uint64, {~std::uint64_t{0},
                                       ~std::uint64_t{0},
                                       0xFFFFFFFF80000000,
                                       0xFFFFFFFF7FFFFF00,
                                       4294967296,
                                       4294971392,
                                       10000000000,
                                       static_cast<std::uint64_t>(-10000000000),
                                       half / 2,
                                       half,
                                       half,
                                       0,
                                       half,
                                       half + half / 2,
                                       0,
                                       half,
                                       0,
                                       half,
                                       2147483648,
                                       4294967040});
}
