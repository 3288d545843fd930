// SPDX-License-Identifier: Apache-2.0
// Tests which casts count as losing values, against all values of all small types. Also tests memory that is not the
// host's.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>
import shardmesh.kernels;

using namespace shardmesh;

namespace {

// Every value of a type of one or two bytes.
std::vector<std::byte> all_values(dtype type) {
  const std::size_t item = static_cast<std::size_t>(item_bytes(type));
  const std::size_t count = type == dtype::boolean ? 2 : std::size_t{1} << (8 * item);
  std::vector<std::byte> bytes(count * item);
  for (std::size_t i = 0; i < count; ++i) std::memcpy(bytes.data() + i * item, &i, item);  // little-endian
  return bytes;
}

tensor_view line(std::vector<std::byte>& bytes, dtype type) {
  return {bytes.data(), type, {}, {static_cast<std::int64_t>(bytes.size()) / item_bytes(type)}, {1}};
}

}  // namespace

TEST_CASE("a cast that is said to widen keeps every value of every small type, -0 and infinities too") {
  int widening = 0;
  for (const dtype from : all_dtypes())
    for (const dtype to : all_dtypes()) {
      if (from == to || bits(from) > 16 || kind(from) == dtype_kind::bits || !is_convertible(from, to)) continue;
      if (!widens(from, to)) continue;
      ++widening;
      INFO(name(from) << " to " << name(to));
      auto values = all_values(from);
      std::vector<std::byte> cast(values.size() / static_cast<std::size_t>(item_bytes(from)) *
                                  static_cast<std::size_t>(item_bytes(to))),
          back(values.size());
      REQUIRE(copy(line(cast, to), line(values, from)));
      REQUIRE(copy(line(back, from), line(cast, to)));
      const auto compared = compare(line(back, from), line(values, from)).value();
      CHECK(compared.different == 0);
      // `compare` treats -0 as 0, so the bits are compared as well, except for NaNs.
      for (std::size_t i = 0; i < values.size() && kind(from) == dtype_kind::floating; ++i) {
        const std::int64_t at = static_cast<std::int64_t>(i) / item_bytes(from);
        if (values[i] != back[i] && value_text(line(values, from), {at}) != "nan") {
          FAIL_CHECK(value_text(line(values, from), {at}) << " became " << value_text(line(back, from), {at}));
          break;
        }
      }
    }
  CHECK(widening > 60);
}

TEST_CASE("casts that lose values have to be allowed, and the rule is one") {
  struct rule {
    dtype from, to;
    errc code;
  };
  for (const rule& r : {rule{dtype::float32, dtype::int32, errc::narrowing},
                        {dtype::int32, dtype::float32, errc::narrowing},
                        {dtype::float64, dtype::float32, errc::narrowing},
                        {dtype::bfloat16, dtype::float16, errc::narrowing},
                        {dtype::int64, dtype::bfloat16, errc::narrowing},
                        {dtype::complex64, dtype::float32, errc::narrowing},
                        {dtype::boolean, dtype::float8_e8m0fnu, errc::narrowing},
                        {dtype::float8_e4m3fn, dtype::float8_e4m3fnuz, errc::narrowing},
                        {dtype::float8_e5m2, dtype::float8_e5m2fnuz, errc::narrowing},
                        {dtype::float32, dtype::undefined, errc::dtype_mismatch},
                        {dtype::float32, dtype::bits8, errc::unsupported}}) {
    INFO(name(r.from) << " to " << name(r.to));
    const auto refused = check_cast(r.from, r.to, false);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == r.code);
    CHECK(check_cast(r.from, r.to, true).has_value() == (r.code == errc::narrowing));
  }
  for (const auto& [from, to] : {std::pair{dtype::float32, dtype::float64},
                                 {dtype::bfloat16, dtype::float32},
                                 {dtype::int32, dtype::float64},
                                 {dtype::boolean, dtype::uint8},
                                 {dtype::float32, dtype::complex64},
                                 {dtype::bits8, dtype::bits8}})
    CHECK(check_cast(from, to, false));
  const auto said = check_cast(dtype::float32, dtype::int32, false);
  CHECK(said.error().message == "casting float32 to int32 loses values");
}

TEST_CASE("no kernel follows a pointer into a device's memory") {
  std::byte none{0x5A};
  const tensor_view far{&none, dtype::uint8, {device_type::cuda, 2}, {1}, {1}};
  std::byte here{0x11};
  const tensor_view near{&here, dtype::uint8, {}, {1}, {1}};
  std::vector<result<void>> said;
  said.push_back(copy(near, far));
  said.push_back(copy(far, near));
  said.push_back(accumulate(far, near, reduce_op::sum));
  said.push_back(accumulate(near, far, reduce_op::sum));
  said.push_back(fill_identity(far, reduce_op::sum));
  said.push_back(scale(far, 2));
  said.push_back(divide(far, 2));
  said.push_back(byte_swap(far));
  said.push_back(conjugate(far));
  said.push_back(negate(far));
  const auto compared = compare(near, far);
  said.push_back(compared ? result<void>() : result<void>(compared.error()));
  for (std::size_t i = 0; i < said.size(); ++i) {
    INFO(i);
    REQUIRE_FALSE(said[i]);
    CHECK(said[i].error().code == errc::unsupported);
    CHECK(said[i].error().found == "cuda:2");
  }
  CHECK(none == std::byte{0x5A});
  CHECK(here == std::byte{0x11});
}
