// SPDX-License-Identifier: Apache-2.0
// Tests the byte format of what ranks send each other, and of errors with several problems. Everything is read back as
// written, and truncated or altered bytes are never read beyond their end.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
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

// The bytes of one problem without key, file, ranks, and boxes.
void write_problem(detail::wire_writer& out, const std::string& message) {
  out.number(static_cast<std::int64_t>(errc::gap));
  out.number(0);  // sys
  out.text(message);
  for (int i = 0; i < 5; ++i) out.text("");
  out.number(0);  // ranks
  out.number(0);  // boxes
}

// The bytes of an error that claims so many problems.
std::vector<std::byte> claiming(std::int64_t more, std::int64_t others, int written_others) {
  detail::wire_writer out;
  write_problem(out, "first");
  out.number(more);
  out.number(others);
  for (int i = 0; i < written_others; ++i) write_problem(out, "other");
  return std::move(out).take();
}

std::vector<error> numbered_problems(int count) {
  std::vector<error> made;
  for (int i = 0; i < count; ++i) made.push_back(fail(errc::missing_key, "is missing").with_key(std::to_string(i)));
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
  for (const std::uint64_t seed : random_seed::seeds(300)) {
    INFO("SHARDMESH_SEED=" << seed);
    std::mt19937_64 random(seed);
    const said what = random_said(random);
    const std::vector<std::byte> bytes = written(what);
    detail::wire_reader in(bytes);
    CHECK(read(in) == what);
    CHECK(in.finished());
  }
}

TEST_CASE("bytes from another rank that are cut short are refused, altered ones are never read beyond their end") {
  for (const std::uint64_t seed : random_seed::seeds(200)) {
    INFO("SHARDMESH_SEED=" << seed);
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

TEST_CASE("an error that carries other problems survives the way through bytes") {
  error e = fail_all({fail(errc::gap, "first").with_key("a").with_rank(3).with_hint("h"),
                      fail(errc::io, "second").with_file("f").with_values("x", "y"),
                      fail(errc::overlap, "third").with_box({{0, 1}, {2, 3}}).with_rank(0).with_rank(1)},
                     7);
  e.others[0].sys = 28;
  const std::vector<std::byte> bytes = to_bytes(e);
  CHECK(error_from_bytes(bytes) == e);
  for (std::size_t n = 0; n < bytes.size(); ++n) CHECK_FALSE(error_from_bytes(std::span(bytes).first(n)).has_value());
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (std::uint64_t round = 0; round < random_seed::rounds(1000); ++round) {
    std::vector<std::byte> damaged = bytes;
    for (int n = 0; n < 3; ++n) damaged[random() % damaged.size()] = static_cast<std::byte>(random());
    const auto read_back = error_from_bytes(damaged);
    CHECK((!read_back || read_back->problem_count() > 0));
  }
}

TEST_CASE("only the first 99 other problems travel, and the rest is counted") {
  error e = fail(errc::gap, "first");
  e.others = numbered_problems(150);
  e.more = 4;
  const std::optional<error> got = error_from_bytes(to_bytes(e));
  REQUIRE(got);
  CHECK(got->others == numbered_problems(99));
  CHECK(got->more == 51 + 4);
  CHECK(got->problem_count() == e.problem_count());
}

TEST_CASE("the others of an error that travels have no others") {
  error e = fail(errc::gap, "first");
  e.others = {fail_all(numbered_problems(3))};
  const std::optional<error> got = error_from_bytes(to_bytes(e));
  REQUIRE(got);
  CHECK(got->others == numbered_problems(1));
}

TEST_CASE("an error that claims more problems than its bytes hold is refused") {
  constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  REQUIRE(error_from_bytes(claiming(0, 0, 0)) == fail(errc::gap, "first"));
  REQUIRE(error_from_bytes(claiming(5, 2, 2))->problem_count() == 8);
  REQUIRE(error_from_bytes(claiming(0, 99, 99))->problem_count() == 100);
  CHECK_FALSE(error_from_bytes(claiming(0, 100, 100)));  // no sender keeps so many
  for (const std::int64_t others :
       {std::int64_t{1}, std::int64_t{99}, std::int64_t{1} << 40, largest, std::int64_t{-1}})
    CHECK_FALSE(error_from_bytes(claiming(0, others, 0)));
  CHECK_FALSE(error_from_bytes(claiming(0, 1, 2)));
}

TEST_CASE("an error that claims a negative or an overflowing number of dropped problems is refused") {
  CHECK_FALSE(error_from_bytes(claiming(-1, 0, 0)));
  CHECK_FALSE(error_from_bytes(claiming(std::numeric_limits<std::int64_t>::max(), 0, 0)));
}

TEST_CASE("a rank that reports several problems is named in each of them, except for gaps and those of other ranks") {
  const error e = detail::reported_by(fail_all({fail(errc::io, "first"), fail(errc::gap, "second"),
                                                fail(errc::io, "third").with_rank(5), fail(errc::io, "fourth")}),
                                      2);
  const std::vector<error> problems = e.problems();
  REQUIRE(problems.size() == 4);
  CHECK(problems[0].ranks == std::vector<std::int32_t>{2});
  CHECK(problems[1].ranks.empty());
  CHECK(problems[2].ranks == std::vector<std::int32_t>{5});
  CHECK(problems[3].ranks == std::vector<std::int32_t>{2});
}
