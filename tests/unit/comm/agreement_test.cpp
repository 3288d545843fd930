// SPDX-License-Identifier: Apache-2.0
// Tests that ranks compare their arguments. When they agree, each gets all notes; otherwise the error names the key,
// both values, and the ranks.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <random>
#include <random_seed.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include <watchdog.hpp>
import shardmesh.comm;

using namespace shardmesh;
using namespace std::chrono_literals;

namespace {

using records = std::vector<agreement_record>;

// The result of `agree` on each rank, where rank r passes `all[r]`.
std::vector<std::optional<error>> outcome(const std::vector<records>& all, bool ordered,
                                          std::optional<std::size_t> in_trouble = std::nullopt) {
  const watchdog dog(30s);
  std::vector<std::optional<error>> got(all.size());
  const error trouble = fail(errc::io, "no luck").with_key("k");
  run_ranks(static_cast<std::int32_t>(all.size()), [&](any_communicator& comm) -> result<void> {
    const auto me = static_cast<std::size_t>(comm.rank());
    agree_options options{.what = "tensors", .ordered = ordered, .note = {static_cast<std::byte>(me)}};
    if (in_trouble == me) options.problem = &trouble;
    const auto done = agree(comm, all[me], options);
    if (!done) {
      got[me] = done.error();
      // The communicator still works.
      return comm.all_gather({}, {}) ? result<void>{} : fail(errc::communication, "poisoned");
    }
    for (std::size_t r = 0; r < all.size(); ++r)
      if ((*done)[r] != std::vector<std::byte>{static_cast<std::byte>(r)})
        return fail(errc::checksum_mismatch, "wrong note");
    return {};
  }).value();
  return got;
}

error common(const std::vector<std::optional<error>>& got) {
  for (const auto& e : got) {
    REQUIRE(e.has_value());
    REQUIRE(e == got.front());
  }
  return *got.front();
}

bool says(const error& e, const std::string& text) {
  UNSCOPED_INFO(to_string(e));
  return to_string(e).find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("ranks with equal records agree, and get each other's notes") {
  const records r{{"a", "float32 [2]"}, {"b", "int8 [3]"}};
  for (const auto& e : outcome({r, r, r}, true)) CHECK_FALSE(e.has_value());
  for (const auto& e : outcome({{}, {}}, false)) CHECK_FALSE(e.has_value());
  for (const auto& e : outcome({r}, true)) CHECK_FALSE(e.has_value());
}

TEST_CASE("the order of records matters only when asked") {
  const records one{{"a", "1"}, {"b", "2"}}, other{{"b", "2"}, {"a", "1"}};
  for (const auto& e : outcome({one, other}, false)) CHECK_FALSE(e.has_value());
  const error e = common(outcome({one, one, other}, true));
  CHECK(e.code == errc::disagreement);
  CHECK(says(e, "ranks list the same tensors in different orders, first at position 0"));
  CHECK(e.key == "a");
  CHECK(e.ranks == std::vector<std::int32_t>{2});
  CHECK(e.expected == "a on ranks 0, 1");
  CHECK(e.found == "b on rank 2");
}

TEST_CASE("a disagreement names the key, both descriptions and the ranks on each side") {
  const records good{{"a", "float32 [2]"}, {"w", "float32 [4, 4]"}};
  const records bad{{"a", "float32 [2]"}, {"w", "float64 [4, 4]"}};
  const error e = common(outcome({good, bad, good, good}, true));
  CHECK(e.code == errc::disagreement);
  CHECK(says(e, "ranks disagree on 1 of 2 tensors: 'w' is float32 [4, 4] on ranks 0, 2, 3, float64 [4, 4] on rank 1"));
  CHECK(e.key == "w");
  CHECK(e.ranks == std::vector<std::int32_t>{1});
  CHECK(e.expected == "float32 [4, 4] on ranks 0, 2, 3");
  CHECK(e.found == "float64 [4, 4] on rank 1");
}

TEST_CASE("keys that a rank lacks, or has alone, are missing on the others") {
  const error e = common(outcome({{{"a", "1"}}, {{"a", "1"}, {"b", "2"}}, {}}, false));
  CHECK(says(e, "ranks disagree on 2 of 2 tensors"));
  CHECK(says(e, "'a' is 1 on ranks 0, 1, missing on rank 2"));
  CHECK(says(e, "'b' is missing on ranks 0, 2, 2 on rank 1"));
  CHECK(e.ranks == std::vector<std::int32_t>{1, 2});
}

TEST_CASE("a key that occurs twice is compared twice") {
  const error e = common(outcome({{{"a", "1"}, {"a", "2"}}, {{"a", "1"}}}, true));
  CHECK(says(e, "'a' is 2 on rank 0, missing on rank 1"));
}

TEST_CASE("of many differences ten are named and the others counted") {
  records one, other;
  for (int i = 0; i < 300; ++i) {
    one.push_back({"key" + std::to_string(i), "x"});
    other.push_back({"key" + std::to_string(i), i % 2 == 0 ? "x" : "y"});
  }
  const error e = common(outcome({one, other}, true));
  CHECK(says(e, "ranks disagree on 150 of 300 tensors"));
  CHECK(says(e, "and 140 more"));
  CHECK(e.message.size() < 1000);
}

TEST_CASE("a rank that cannot go on makes every rank return its error") {
  const records r{{"a", "1"}};
  const error e = common(outcome({r, r, r}, true, 1));
  CHECK(e.code == errc::io);
  CHECK(says(e, "k: no luck (rank 1)"));
}

TEST_CASE("what would be read as a ballot but for its first number is not taken for one") {
  const watchdog dog(30s);
  std::optional<error> got;
  run_ranks(2, [&](any_communicator& comm) -> result<void> {
    if (comm.rank() == 1) {
      detail::wire_writer other;
      other.number(7);
      other.digest({});
      other.flag(false);
      other.text("agree");
      auto sent = comm.all_gather(std::move(other).take(), {});
      return sent ? result<void>() : std::move(sent).error();
    }
    const auto done = agree(comm, records{{"a", "1"}}, {.what = "tensors"});
    if (!done) got = done.error();
    return {};
  }).value();
  REQUIRE(got);
  CHECK(to_string(*got) == "a rank is in another call while the others compare tensors (rank 1)");
}

TEST_CASE("a rank in another collective is named") {
  const watchdog dog(30s);
  std::mutex lock;
  std::vector<error> got;
  static_cast<void>(run_ranks(3, [&](any_communicator& comm) -> result<void> {
    if (comm.rank() == 2) {
      static_cast<void>(comm.all_gather({}, {}));
      return {};
    }
    const auto done = agree(comm, records{{"a", "1"}}, {});
    const std::scoped_lock guard(lock);
    if (!done) got.push_back(done.error());
    return {};
  }));
  REQUIRE(got.size() == 2);
  CHECK(got[0] == got[1]);
  CHECK(got[0].code == errc::disagreement);
  CHECK(got[0].ranks == std::vector<std::int32_t>{2});
}

TEST_CASE("an error survives the way through bytes, and other bytes are no error") {
  error e = fail(errc::gap, "a message").with_key("k\n").with_file("f").with_rank(3).with_rank(-1).with_hint("h");
  e = std::move(e).with_box({{0, 1}, {2, 3}}).with_box({{}, {}}).with_values("x", "y");
  e.sys = 28;
  e.others = {fail(errc::overlap, "another").with_key("l").with_rank(2).with_box({{0}, {1}}),
              fail(errc::io, "a third")};
  e.more = 5;
  const std::vector<std::byte> bytes = to_bytes(e);
  CHECK(error_from_bytes(bytes) == e);
  for (std::size_t n = 0; n < bytes.size(); ++n) CHECK_FALSE(error_from_bytes(std::span(bytes).first(n)).has_value());
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::byte> damaged = bytes;
    for (int n = 0; n < 3; ++n) damaged[random() % damaged.size()] = static_cast<std::byte>(random());
    static_cast<void>(error_from_bytes(damaged));  // must neither crash nor allocate excessively
  }
}
