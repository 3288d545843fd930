// SPDX-License-Identifier: Apache-2.0
// Tests a thread that treats subnormal numbers as zero (torch.set_flush_denormal, programs built with -ffast-math): it
// gets the same differences and conversions.
#include <catch2/catch_test_macros.hpp>
#include <shardmesh/tensor_view.hpp>

#include <bit>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

import shardmesh.kernels;

using namespace shardmesh;

namespace {

#if defined(__x86_64__)
class flushing {
 public:
  flushing() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
  ~flushing() { _mm_setcsr(before_); }
  bool is_on() const { return (_mm_getcsr() & 0x8040) == 0x8040; }

 private:
  unsigned before_;
};
#else
struct flushing {
  flushing() { SKIP("the mode is set on x86-64 only"); }
  bool is_on() const { return true; }
};
#endif

template <class T>
tensor_view line(std::vector<T>& values, dtype type) {
  return {reinterpret_cast<std::byte*>(values.data()), type, {}, {static_cast<std::int64_t>(values.size())}, {1}};
}

template <class T>
void check_seen(dtype type, T least, double difference) {
  std::vector<T> a{T(1), least, T(0)}, b{T(1), T(0), T(0)};
  const flushing zero;
  const auto found = compare(line(a, type), line(b, type));
  REQUIRE(found);
  CHECK(found->different == 1);
  CHECK(found->first_index == extents{1});
  // Compared as bits, because this thread treats both as zero.
  const auto bits = [](double value) { return std::bit_cast<std::uint64_t>(value); };
  CHECK(bits(found->largest_difference) == bits(difference));
  CHECK(zero.is_on());
}

}  // namespace

TEST_CASE("compare sees subnormal numbers in a thread that flushes them") {
  constexpr float f = std::numeric_limits<float>::denorm_min();
  constexpr double d = std::numeric_limits<double>::denorm_min();
  check_seen<float>(dtype::float32, f, static_cast<double>(f));
  check_seen<double>(dtype::float64, d, d);
  check_seen<std::complex<float>>(dtype::complex64, {0, f}, static_cast<double>(f));
  check_seen<std::uint16_t>(dtype::bfloat16, 1, 0x1p-133);
  check_seen<std::uint16_t>(dtype::float16, 1, 0x1p-24);
}

TEST_CASE("a value's text is a subnormal number in a thread that flushes them") {
  std::vector<float> least{std::numeric_limits<float>::denorm_min()};
  std::vector<std::uint16_t> brain{1};
  const flushing zero;
  CHECK(value_text(line(least, dtype::float32), {0}) == "1e-45");
  CHECK(value_text(line(brain, dtype::bfloat16), {0}) == "9.1835e-41");
}

TEST_CASE("conversions keep subnormal numbers in a thread that flushes them") {
  constexpr float least = std::numeric_limits<float>::denorm_min();
  std::vector<float> narrow{least, -least, 0x1p-130F};
  std::vector<double> wide(3), back{static_cast<double>(least), 0x1p-149, -0x1p-140};
  std::vector<float> rounded(3);
  {
    const flushing zero;
    REQUIRE(copy(line(wide, dtype::float64), line(narrow, dtype::float32)));
    REQUIRE(copy(line(rounded, dtype::float32), line(back, dtype::float64)));
    CHECK(zero.is_on());
  }
  CHECK(wide == std::vector<double>{0x1p-149, -0x1p-149, 0x1p-130});
  CHECK(rounded == std::vector<float>{least, least, -0x1p-140F});
}
