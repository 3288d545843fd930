// SPDX-License-Identifier: Apache-2.0
// Tests equality for each kind of type. Random views are in reference_test.cpp.
#include <catch2/catch_test_macros.hpp>
#include <shardmesh/tensor_view.hpp>

#include <charconv>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <random_seed.hpp>
#include <string>
#include <vector>

import shardmesh.kernels;

using namespace shardmesh;

namespace {

template <class T>
tensor_view line(std::vector<T>& values, dtype type) {
  return {reinterpret_cast<std::byte*>(values.data()), type, {}, {static_cast<std::int64_t>(values.size())}, {1}};
}

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("NaN equals NaN, minus zero equals zero, everything else by value") {
  std::vector<double> a{not_a_number, -0.0, 1, not_a_number, inf, 2}, b{-not_a_number, 0.0, 1, 3, -inf, 2.5};
  const auto found = compare(line(a, dtype::float64), line(b, dtype::float64));
  REQUIRE(found);
  CHECK(found->different == 3);
  CHECK(found->first_index == extents{3});
  CHECK(found->largest_difference == inf);
}

TEST_CASE("a tolerance is absolute and relative to the second side") {
  std::vector<float> a{100.5f, 0.4f, 1}, b{100.0f, 0.0f, 3};
  const auto found = compare(line(a, dtype::float32), line(b, dtype::float32), {.tolerance = 0.25});
  REQUIRE(found);
  CHECK(found->different == 2);
  CHECK(found->first_index == extents{1});
  CHECK(found->largest_difference == 2);
  std::vector<double> x{inf, 1, not_a_number}, y{1, inf, 0};
  CHECK(compare(line(x, dtype::float64), line(y, dtype::float64), {.tolerance = 1e9})->different == 3);
}

TEST_CASE("complex values differ by a magnitude") {
  std::vector<std::complex<float>> a{{3, 4}, {1, 1}}, b{{0, 0}, {1, 1}};
  const auto found = compare(line(a, dtype::complex64), line(b, dtype::complex64));
  REQUIRE(found);
  CHECK(found->different == 1);
  CHECK(found->largest_difference == 5);
}

TEST_CASE("dtypes must be equal unless they are ignored, and then integers compare exactly") {
  std::vector<std::int64_t> a{-1, 9007199254740993, 5};
  std::vector<std::uint64_t> b{18446744073709551615u, 9007199254740992u, 5};
  const auto refused = compare(line(a, dtype::int64), line(b, dtype::uint64));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::dtype_mismatch);
  CHECK(to_string(refused.error()).find("expected int64, found uint64") != std::string::npos);
  const auto found = compare(line(a, dtype::int64), line(b, dtype::uint64), {.ignore_dtype = true});
  REQUIRE(found);
  CHECK(found->different == 2);
  CHECK(found->first_index == extents{0});
  CHECK(found->largest_difference == 18446744073709551616.0);
  std::vector<std::uint16_t> half{0x3E00};
  std::vector<float> single{1.5f};
  CHECK(compare(line(half, dtype::float16), line(single, dtype::float32), {.ignore_dtype = true})->equal());
}

TEST_CASE("an integer that no double can hold differs from the floating number beside it") {
  constexpr std::int64_t big = (std::int64_t{1} << 53) + 1;
  std::vector<std::int64_t> a{big, -big, big - 1, INT64_MAX, 3};
  std::vector<double> b{9007199254740992.0, -9007199254740992.0, 9007199254740992.0, 9223372036854775808.0, 3.5};
  for (const bool swapped : {false, true}) {
    const auto left = line(a, dtype::int64), right = line(b, dtype::float64);
    const auto found =
        swapped ? compare(right, left, {.ignore_dtype = true}) : compare(left, right, {.ignore_dtype = true});
    REQUIRE(found);
    CHECK(found->different == 4);
    CHECK(found->first_index == extents{0});
    CHECK(found->largest_difference == 1);
  }
  std::vector<std::int64_t> c{big, 7};
  std::vector<std::complex<double>> d{{9007199254740992.0, 0}, {7, 0}};
  CHECK(compare(line(c, dtype::int64), line(d, dtype::complex128), {.ignore_dtype = true})->different == 1);
  std::vector<std::uint64_t> e{UINT64_MAX};
  std::vector<float> f{18446744073709551616.0f};
  CHECK(compare(line(e, dtype::uint64), line(f, dtype::float32), {.ignore_dtype = true})->largest_difference == 1);
}

TEST_CASE("types without arithmetic compare their bits, sub-byte types element by element") {
  std::vector<std::uint16_t> a{1, 2}, b{1, 3};
  CHECK(compare(line(a, dtype::bits16), line(b, dtype::bits16))->first_index == extents{1});
  std::vector<std::uint8_t> x{0x21, 0x80}, y{0x31, 0x00};  // values .5, 1 | 1.5, 0, -0 | 0
  const auto four = [](std::vector<std::uint8_t>& v) {
    return tensor_view{reinterpret_cast<std::byte*>(v.data()), dtype::float4_e2m1fn, {}, {4}, {1}};
  };
  const auto found = compare(four(x), four(y));
  REQUIRE(found);
  CHECK(found->different == 1);
  CHECK(found->first_index == extents{1});
  CHECK(found->largest_difference == 0.5);
  CHECK_FALSE(compare(line(a, dtype::bits16), line(b, dtype::uint16), {.ignore_dtype = true}));
}

TEST_CASE("equal shapes are needed, empty ones are equal, scalars have an empty index") {
  std::vector<std::uint8_t> a{1, 2}, b{1};
  CHECK(compare(line(a, dtype::uint8), line(b, dtype::uint8)).error().code == errc::shape_mismatch);
  const tensor_view empty{nullptr, dtype::float32, {}, {0, 3}, {3, 1}};
  CHECK(compare(empty, empty)->equal());
  const tensor_view one{reinterpret_cast<std::byte*>(a.data()), dtype::uint8, {}, {}, {}};
  const tensor_view two{reinterpret_cast<std::byte*>(a.data()) + 1, dtype::uint8, {}, {}, {}};
  CHECK(*compare(one, two) == comparison{1, {}, 1});
}

TEST_CASE("the text of a value reads back to the same value") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  std::vector<float> singles(1);
  std::vector<double> doubles(1);
  for (int i = 0; i < 2000; ++i) {
    const auto bits = random();
    std::memcpy(doubles.data(), &bits, 8);
    std::memcpy(singles.data(), &bits, 4);
    if (doubles[0] == doubles[0])
      CHECK(std::strtod(value_text(line(doubles, dtype::float64), {0}).c_str(), nullptr) == doubles[0]);
    if (singles[0] == singles[0])
      CHECK(std::strtof(value_text(line(singles, dtype::float32), {0}).c_str(), nullptr) == singles[0]);
  }
}

TEST_CASE("values are spelled as in Python, bits in hexadecimal") {
  std::vector<double> d{not_a_number, -inf, -1.5};
  CHECK(value_text(line(d, dtype::float64), {0}) == "nan");
  CHECK(value_text(line(d, dtype::float64), {1}) == "-inf");
  CHECK(value_text(line(d, dtype::float64), {2}) == "-1.5");
  std::vector<std::complex<float>> c{{1, -2}, {0, 3}};
  CHECK(value_text(line(c, dtype::complex64), {0}) == "(1-2j)");
  CHECK(value_text(line(c, dtype::complex64), {1}) == "(0+3j)");
  std::vector<std::uint64_t> u{18446744073709551615u};
  CHECK(value_text(line(u, dtype::uint64), {0}) == "18446744073709551615");
  CHECK(value_text(line(u, dtype::int64), {0}) == "-1");
  CHECK(value_text(line(u, dtype::bits16), {2}) == "0xffff");
  std::vector<std::uint8_t> b{1, 0, 0x3F};
  CHECK(value_text(line(b, dtype::boolean), {0}) == "true");
  CHECK(value_text(line(b, dtype::float4_e2m1fn_x2), {2}) == "0x3f");
  CHECK(value_text(line(b, dtype::float8_e4m3fn), {2}) == "1.875");
}
