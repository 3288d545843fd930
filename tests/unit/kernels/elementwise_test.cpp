// SPDX-License-Identifier: Apache-2.0
// Tests byte swap, conjugate, and negate with hand-computed values. Random views are in reference_test.cpp.
#include <catch2/catch_test_macros.hpp>
#include <shardmesh/tensor_view.hpp>

#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
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

TEST_CASE("byte swap reverses each element, each part of a complex one") {
  std::vector<std::uint32_t> words{0x01020304, 0xAABBCCDD};
  REQUIRE(byte_swap(line(words, dtype::float32)));
  CHECK(words == std::vector<std::uint32_t>{0x04030201, 0xDDCCBBAA});
  const tensor_view halves{reinterpret_cast<std::byte*>(words.data()), dtype::complex32, {}, {2}, {1}};
  REQUIRE(byte_swap(halves));
  CHECK(words == std::vector<std::uint32_t>{0x03040102, 0xCCDDAABB});
  std::vector<std::uint8_t> bytes{1, 2};
  REQUIRE(byte_swap(line(bytes, dtype::uint8)));
  CHECK(bytes == std::vector<std::uint8_t>{1, 2});
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
