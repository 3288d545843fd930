// SPDX-License-Identifier: Apache-2.0
// Byte swap, conjugate and negate against a loop.
#include <catch2/catch_test_macros.hpp>
#include <indices.hpp>
#include <random_views.hpp>
#include <shardmesh/tensor_view.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

import shardmesh.kernels;

using namespace shardmesh;

namespace {

template <class T>
tensor_view line(std::vector<T>& values, dtype type) {
  return {reinterpret_cast<std::byte*>(values.data()), type, {}, {static_cast<std::int64_t>(values.size())}, {1}};
}

}  // namespace

TEST_CASE("byte swap reverses each element of a random strided view, each part of a complex one") {
  std::mt19937_64 random(3);
  constexpr dtype types[] = {dtype::uint8,     dtype::float16,   dtype::float32,   dtype::int64,
                             dtype::complex32, dtype::complex64, dtype::complex128};
  for (int round = 0; round < 200; ++round) {
    const dtype type = types[random() % std::size(types)];
    const auto item = static_cast<std::size_t>(item_bytes(type));
    const std::size_t part = kind(type) == dtype_kind::complex ? item / 2 : item;
    const extents sizes = random_views::random_sizes(random);
    auto v = random_views::make(random, sizes, type, item, false);
    auto expected = v.memory;
    indices::for_each(sizes, [&](const extents& i) {
      std::byte* element = expected.data() + (v.at(i) - v.memory.data());
      for (std::size_t at = 0; at < item; at += part) std::reverse(element + at, element + at + part);
    });
    REQUIRE(byte_swap(v.view));
    REQUIRE(v.memory == expected);
  }
}

TEST_CASE("conjugate flips the imaginary sign and leaves real types alone") {
  std::vector<std::complex<float>> values{{1, 2}, {-3, 0}};
  REQUIRE(conjugate(line(values, dtype::complex64)));
  CHECK(values[0] == std::complex<float>(1, -2));
  CHECK(std::signbit(values[1].imag()));
  CHECK(values[1].real() == -3);
  std::vector<std::uint16_t> halves{0x3C00, 0x4000};
  REQUIRE(conjugate(line(halves, dtype::float16)));
  CHECK(halves == std::vector<std::uint16_t>{0x3C00, 0x4000});
  const tensor_view complex_half{reinterpret_cast<std::byte*>(halves.data()), dtype::complex32, {}, {1}, {1}};
  REQUIRE(conjugate(complex_half));
  CHECK(halves == std::vector<std::uint16_t>{0x3C00, 0xC000});
}

TEST_CASE("negate changes signs, keeps the fnuz zero, and refuses types without a sign") {
  std::vector<std::complex<double>> pair{{1, -2}};
  REQUIRE(negate(line(pair, dtype::complex128)));
  CHECK(pair[0] == std::complex<double>(-1, 2));
  std::vector<std::int32_t> whole{5, 0, INT32_MIN};
  REQUIRE(negate(line(whole, dtype::int32)));
  CHECK(whole == std::vector<std::int32_t>{-5, 0, INT32_MIN});
  std::vector<std::uint8_t> eight{0x00, 0x80, 0x38};
  REQUIRE(negate(line(eight, dtype::float8_e4m3fnuz)));
  CHECK(eight == std::vector<std::uint8_t>{0x00, 0x80, 0xB8});
  for (const dtype type : {dtype::boolean, dtype::float8_e8m0fnu, dtype::bits8}) {
    const auto done = negate(line(eight, type));
    REQUIRE_FALSE(done);
    CHECK(done.error().code == errc::unsupported);
    CHECK(done.error().message.find(name(type)) != std::string::npos);
  }
}
