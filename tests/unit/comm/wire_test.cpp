// SPDX-License-Identifier: Apache-2.0
// Tests the byte format of what ranks send each other. Everything is read back as written, and truncated or altered
// bytes are never read beyond their end.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "random_seed.hpp"
import shardmesh.comm;

using namespace shardmesh;

namespace {

struct said {
  std::int64_t number = 0;
  bool flag = false;
  extents numbers;
  box where;
  std::string text;
  std::vector<std::byte> bytes;
  digest128 digest;
  friend bool operator==(const said&, const said&) = default;
};

std::vector<std::byte> written(const said& what) {
  detail::wire_writer out;
  out.number(what.number);
  out.flag(what.flag);
  out.numbers(what.numbers);
  out.where(what.where);
  out.text(what.text);
  out.bytes(what.bytes);
  out.digest(what.digest);
  return std::move(out).take();
}

said read(detail::wire_reader& in) {
  said made;
  made.number = in.number();
  made.flag = in.flag();
  made.numbers = in.numbers();
  made.where = in.where();
  made.text = in.text();
  made.bytes = in.bytes();
  made.digest = in.digest();
  return made;
}

said random_said(std::mt19937_64& random) {
  const auto number = [&] { return static_cast<std::int64_t>(random() >> random() % 64) * (random() % 2 ? 1 : -1); };
  const auto few = [&](std::uint64_t most) { return random() % (most + 1); };
  said made{number(), random() % 2 == 0, {}, {}, std::string(few(40), 'x'), {}, {random(), random()}};
  for (std::uint64_t left = few(max_rank); left > 0; --left) made.numbers.push_back(number());
  for (std::uint64_t left = few(max_rank); left > 0; --left) {
    made.where.offsets.push_back(number());
    made.where.sizes.push_back(number());
  }
  made.bytes.resize(few(300));
  for (std::byte& one : made.bytes) one = static_cast<std::byte>(random());
  return made;
}

}  // namespace

TEST_CASE("what one rank writes for another is read back") {
  for (const std::int64_t number :
       {std::int64_t{0}, std::int64_t{-1}, std::int64_t{63}, std::int64_t{64}, std::numeric_limits<std::int64_t>::max(),
        std::numeric_limits<std::int64_t>::min()}) {
    detail::wire_writer out;
    out.number(number);
    detail::wire_reader in(out.written());
    CHECK(in.number() == number);
    CHECK(in.finished());
  }
  for (std::uint64_t seed = 0; seed < random_seed::rounds(300); ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const said what = random_said(random);
    const std::vector<std::byte> bytes = written(what);
    detail::wire_reader in(bytes);
    CHECK(read(in) == what);
    CHECK(in.finished());
  }
}

TEST_CASE("bytes from another rank that are cut short are refused, altered ones are never read beyond their end") {
  for (std::uint64_t seed = 0; seed < random_seed::rounds(200); ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    std::vector<std::byte> bytes = written(random_said(random));
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      const std::vector<std::byte> part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
      detail::wire_reader in(part);
      read(in);
      CHECK_FALSE(in.ok());
    }
    for (int i = 0; i < 20; ++i) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
      detail::wire_reader in(bytes);
      const said made = read(in);
      CHECK(made.text.size() + made.bytes.size() <= bytes.size());
      CHECK((in.ok() || in.number() == 0));  // after the first error, every answer is empty
    }
  }
}

TEST_CASE("a number of more than 64 bits is refused") {
  std::vector<std::byte> bytes(9, std::byte{0x80});
  bytes.push_back(std::byte{1});
  detail::wire_reader fits(bytes);
  CHECK(fits.number() == std::int64_t{1} << 62);  // 2^63 on the wire, where the lowest bit is the sign
  CHECK(fits.ok());
  bytes.back() = std::byte{2};
  detail::wire_reader exceeds(bytes);
  CHECK(exceeds.number() == 0);
  CHECK_FALSE(exceeds.ok());
}
