// SPDX-License-Identifier: Apache-2.0
// Tests copies and conversions of views at tile borders, and refusals. Random views are in reference_test.cpp; every
// conversion of a single element is in casts_test.cpp.
#include <catch2/catch_test_macros.hpp>
#include <indices.hpp>
#include <random_views.hpp>
#include <shardmesh/tensor_view.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

import shardmesh.kernels;

using namespace shardmesh;

namespace {

tensor_view line(void* data, dtype type, std::int64_t count, std::int64_t stride = 1) {
  return {static_cast<std::byte*>(data), type, {}, {count}, {stride}};
}

}  // namespace

TEST_CASE("a view of sixteen dimensions is copied") {
  std::mt19937_64 random(9);
  extents sizes = extents::filled(16, 2);
  auto to = random_views::make(random, sizes, dtype::int16, 2, false);
  const auto from = random_views::make(random, sizes, dtype::int16, 2, false);
  REQUIRE(copy(to.view, from.view));
  indices::for_each(sizes, [&](const extents& i) { REQUIRE(std::memcmp(to.at(i), from.at(i), 2) == 0); });
}

TEST_CASE("a large transpose is exact at tile borders") {
  constexpr std::int64_t rows = 131, columns = 97;
  std::vector<std::int32_t> from(rows * columns), to(rows * columns, -1);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::int32_t>(i);
  REQUIRE(copy({reinterpret_cast<std::byte*>(to.data()), dtype::int32, {}, {columns, rows}, {rows, 1}},
               {reinterpret_cast<std::byte*>(from.data()), dtype::int32, {}, {columns, rows}, {1, columns}}));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) REQUIRE(to[static_cast<std::size_t>(c * rows + r)] == r * columns + c);
}

TEST_CASE("shapes that differ are refused with both shapes") {
  std::int32_t a[6]{}, b[6]{};
  const auto done = copy(line(a, dtype::int32, 6), line(b, dtype::int32, 5));
  REQUIRE_FALSE(done);
  CHECK(done.error().code == errc::shape_mismatch);
  CHECK(to_string(done.error()).find("expected [6], found [5]") != std::string::npos);
}

TEST_CASE("types without a conversion are refused by name, and copy to themselves") {
  std::uint8_t a[4]{1, 2, 3, 4}, b[4]{};
  for (const dtype type : {dtype::float4_e2m1fn_x2, dtype::bits8, dtype::bits1x8, dtype::float8_e4m3}) {
    CHECK_FALSE(is_convertible(type, dtype::float32));
    CHECK_FALSE(is_convertible(dtype::float32, type));
    CHECK(is_convertible(type, type));
    b[3] = 0;
    REQUIRE(copy(line(b, type, 4), line(a, type, 4)));
    CHECK(b[3] == 4);
  }
  const auto done = copy(line(b, dtype::uint8, 4), line(a, dtype::float4_e2m1fn_x2, 4));
  REQUIRE_FALSE(done);
  CHECK(done.error().code == errc::unsupported);
  CHECK(done.error().message == "no conversion from float4_e2m1fn_x2 to uint8");
}

TEST_CASE("a sub-byte type copies in whole bytes or is refused") {
  std::uint8_t from[6]{0x21, 0x43, 0x65, 0x87, 0xA9, 0xCB}, to[6]{};
  const auto view = [](std::uint8_t* data, extents sizes, extents strides) {
    return tensor_view{reinterpret_cast<std::byte*>(data), dtype::float4_e2m1fn, {}, sizes, strides};
  };
  REQUIRE(copy(view(to, {3, 2}, {4, 1}), view(from, {3, 2}, {4, 1})));  // every other byte
  CHECK(std::vector<int>(to, to + 6) == std::vector<int>{0x21, 0, 0x65, 0, 0xA9, 0});
  REQUIRE(copy(view(to, {12}, {1}), view(from, {12}, {1})));
  CHECK(to[5] == 0xCB);
  const auto odd = copy(view(to, {3}, {1}), view(from, {3}, {1}));
  REQUIRE_FALSE(odd);
  CHECK(odd.error().code == errc::unaligned);
  CHECK_FALSE(copy(view(to, {2, 2}, {3, 1}), view(from, {2, 2}, {3, 1})));
  std::uint8_t six[3]{1, 2, 3}, copied[3]{};
  REQUIRE(copy(line(copied, dtype::float6_e2m3, 4), line(six, dtype::float6_e2m3, 4)));
  CHECK(copied[2] == 3);
}

TEST_CASE("an empty view and a scalar are copied") {
  std::int64_t a = 5, b = 0;
  REQUIRE(copy({reinterpret_cast<std::byte*>(&b), dtype::int64, {}, {}, {}},
               {reinterpret_cast<std::byte*>(&a), dtype::int64, {}, {}, {}}));
  CHECK(b == 5);
  REQUIRE(copy({nullptr, dtype::int64, {}, {3, 0}, {0, 1}}, {nullptr, dtype::int64, {}, {3, 0}, {0, 1}}));
  REQUIRE(copy({nullptr, dtype::int64, {}, {0}, {1}}, {nullptr, dtype::float16, {}, {0}, {1}}));
}

TEST_CASE("a large transposed conversion is exact at the borders of passes and bands") {
  constexpr std::int64_t rows = 523, columns = 71;
  std::vector<std::int32_t> from(rows * columns);
  std::vector<double> to(rows * columns, -1);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::int32_t>(i);
  REQUIRE(copy({reinterpret_cast<std::byte*>(to.data()), dtype::float64, {}, {columns, rows}, {1, columns}},
               {reinterpret_cast<std::byte*>(from.data()), dtype::int32, {}, {columns, rows}, {rows, 1}}));
  for (std::int64_t c = 0; c < columns; ++c)
    for (std::int64_t r = 0; r < rows; ++r)
      REQUIRE(to[static_cast<std::size_t>(r * columns + c)] == static_cast<double>(c * rows + r));
}
