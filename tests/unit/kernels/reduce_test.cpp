// SPDX-License-Identifier: Apache-2.0
// Tests reductions with hand-computed values: precision, NaN, wrapping, identities, averages, and refusals. Random
// views are in reference_test.cpp.
#include <catch2/catch_test_macros.hpp>
#include <shardmesh/tensor_view.hpp>

#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

import shardmesh.kernels;

using namespace shardmesh;

namespace {

template <class T>
tensor_view line(std::vector<T>& values, dtype type) {
  return {reinterpret_cast<std::byte*>(values.data()), type, {}, {static_cast<std::int64_t>(values.size())}, {1}};
}

constexpr reduce_op all_ops[] = {reduce_op::sum, reduce_op::avg,  reduce_op::product, reduce_op::min,
                                 reduce_op::max, reduce_op::band, reduce_op::bor,     reduce_op::bxor};

}  // namespace

TEST_CASE("terms of bfloat16 are summed in the precision of the destination") {
  std::vector<std::uint16_t> term{0x3B80};  // 2^-8, which bfloat16 cannot add to 1
  std::vector<float> sum{1.0f};
  REQUIRE(accumulate(line(sum, dtype::float32), line(term, dtype::bfloat16), reduce_op::sum));
  CHECK(sum[0] == 1.00390625f);
}

TEST_CASE("integers wrap, bool sums are or, complex products multiply") {
  std::vector<std::int8_t> a{127}, b{1};
  REQUIRE(accumulate(line(a, dtype::int8), line(b, dtype::int8), reduce_op::sum));
  CHECK(a[0] == -128);
  std::vector<std::int64_t> wide{INT64_MAX}, two{2};
  REQUIRE(accumulate(line(wide, dtype::int64), line(two, dtype::int64), reduce_op::product));
  CHECK(wide[0] == -2);
  std::vector<std::uint8_t> p{0, 1, 0, 1}, q{0, 0, 1, 1};
  REQUIRE(accumulate(line(p, dtype::boolean), line(q, dtype::boolean), reduce_op::sum));
  CHECK(p == std::vector<std::uint8_t>{0, 1, 1, 1});
  std::vector<std::complex<float>> x{{1, 2}}, y{{3, -1}};
  REQUIRE(accumulate(line(x, dtype::complex64), line(y, dtype::complex64), reduce_op::product));
  CHECK(x[0] == std::complex<float>(5, 5));
}

TEST_CASE("min and max give NaN when either side is NaN") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const reduce_op op : {reduce_op::min, reduce_op::max}) {
    std::vector<float> a{nan, 1}, b{1, nan};
    REQUIRE(accumulate(line(a, dtype::float32), line(b, dtype::float32), op));
    CHECK(std::isnan(a[0]));
    CHECK(std::isnan(a[1]));
  }
}

TEST_CASE("the identity of an op leaves every element as it is") {
  for (const dtype type : all_dtypes())
    for (const reduce_op op : all_ops) {
      if (!is_combinable(type, op)) continue;
      INFO(name(type) << " " << to_string(op));
      const auto item = static_cast<std::size_t>(item_bytes(type));
      // Every byte value as the element's last byte. The comparison by value leaves out NaNs and, for product,
      // infinities.
      std::vector<std::byte> values(256 * item), before;
      for (std::size_t i = 0; i < 256; ++i)
        values[i * item + item - 1] = static_cast<std::byte>(type == dtype::boolean ? i % 2 : i);
      if (kind(type) == dtype_kind::complex)
        for (std::size_t i = 0; i < 256; ++i) values[i * item + item - 1] = static_cast<std::byte>(i % 0x70);
      before = values;
      std::vector<std::byte> identity(256 * item);
      const tensor_view view{values.data(), type, {}, {256}, {1}}, id{identity.data(), type, {}, {256}, {1}};
      REQUIRE(fill_identity(id, op));
      REQUIRE(accumulate(view, id, op));
      const auto same = compare(view, {before.data(), type, {}, {256}, {1}});
      REQUIRE(same);
      CHECK(same->different == 0);
    }
}

TEST_CASE("ops that a dtype does not have are refused by name") {
  std::vector<float> a{1}, b{1};
  const auto done = accumulate(line(a, dtype::float32), line(b, dtype::float32), reduce_op::bxor);
  REQUIRE_FALSE(done);
  CHECK(done.error().code == errc::unsupported);
  CHECK(done.error().message == "bxor is not defined on float32");
  CHECK_FALSE(accumulate(line(a, dtype::complex32), line(b, dtype::complex32), reduce_op::min));
  CHECK_FALSE(fill_identity(line(a, dtype::bits16), reduce_op::sum));
  CHECK_FALSE(scale(line(a, dtype::int32), 0.5));
  CHECK_FALSE(accumulate(line(a, dtype::float32), line(b, dtype::float32), reduce_op::none));
  std::vector<std::int32_t> whole{1};
  CHECK(accumulate(line(whole, dtype::int32), line(whole, dtype::int32), reduce_op::avg).error().message ==
        "avg is not defined on int32");
  std::vector<std::uint8_t> packed{0x21};
  const tensor_view halves{reinterpret_cast<std::byte*>(packed.data()), dtype::float4_e2m1fn, {}, {2}, {1}};
  CHECK(scale(halves, 2).error().message == "cannot scale float4_e2m1fn");
}

TEST_CASE("dividing a sum gives the correctly rounded average") {
  std::vector<float> values{10.0f, -1.0f, 0.1f};
  REQUIRE(divide(line(values, dtype::float32), 3));
  CHECK(values == std::vector<float>{10.0f / 3.0f, -1.0f / 3.0f, 0.1f / 3.0f});
  std::vector<std::complex<double>> pair{{3, -6}};
  REQUIRE(scale(line(pair, dtype::complex128), 0.5));
  CHECK(pair[0] == std::complex<double>(1.5, -3));
}
