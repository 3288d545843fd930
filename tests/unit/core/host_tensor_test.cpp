// SPDX-License-Identifier: Apache-2.0
// Tests tensors that own host memory, and their elements as C++ values.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>
import shardmesh.core;

using namespace shardmesh;

static_assert(native_element<float> && native_element<std::uint64_t> && native_element<bool>);
static_assert(!native_element<char> && !native_element<long double> && !native_element<std::byte> &&
              !native_element<void>);
static_assert(dtype_of<std::int16_t> == dtype::int16 && dtype_of<std::string> == dtype::undefined);

TEST_CASE("zeros are zeros, and values are what was put there, row-major") {
  host_tensor made = host_tensor::zeros(dtype::float32, {2, 3}).value();
  const std::span<float> values = made.values<float>();
  REQUIRE(values.size() == 6);
  CHECK(std::all_of(values.begin(), values.end(), [](float v) { return v == 0; }));
  for (std::size_t i = 0; i < 6; ++i) values[i] = static_cast<float>(i) + 0.5F;
  const host_tensor& seen = made;
  CHECK(seen.values<float>()[4] == 4.5F);
  CHECK(seen.values<float>().data() == reinterpret_cast<const float*>(seen.bytes().data()));
  CHECK(host_tensor::zeros(dtype::int64, {0, 4}).value().values<std::int64_t>().empty());
  CHECK(host_tensor::zeros(dtype::float64, {}).value().values<double>().size() == 1);
  CHECK(host_tensor::zeros(dtype::float64, {std::int64_t{1} << 62, 4}).error().code == errc::overflow);
  const std::pair<dtype, std::size_t> sizes[] = {{dtype_of<std::int8_t>, 1},
                                                 {dtype_of<std::uint16_t>, 2},
                                                 {dtype_of<std::int32_t>, 4},
                                                 {dtype_of<double>, 8},
                                                 {dtype_of<bool>, 1}};
  for (const auto& [type, bytes] : sizes) CHECK(item_bytes(type) == static_cast<std::int64_t>(bytes));
}

TEST_CASE("dtypes have a spelling, and floating ones are told apart") {
  std::vector<std::string> floating;
  for (const dtype type : all_dtypes()) {
    CHECK(to_string(type) == name(type));
    CHECK(parse_dtype(to_string(type)) == type);
    CHECK(is_floating(type) == (kind(type) == dtype_kind::floating));
  }
  CHECK((is_floating(dtype::bfloat16) && is_floating(dtype::float64)));
  CHECK_FALSE((is_floating(dtype::complex64) || is_floating(dtype::int8) || is_floating(dtype::boolean)));
  std::ostringstream out;
  out << dtype::float16;
  CHECK(out.str() == "float16");
}

TEST_CASE("the number of elements of sizes is that of a view with these sizes") {
  CHECK(numel(extents{2, 3, 5}) == 30);
  CHECK(numel(extents{}) == 1);
  CHECK(numel(extents{4, 0}) == 0);
}
