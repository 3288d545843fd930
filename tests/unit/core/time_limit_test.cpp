// SPDX-License-Identifier: Apache-2.0
// Tests time_limit: durations count from the moment they are given, time points are kept, and nothing overflows.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <concepts>
#include <limits>
#include <optional>
#include <ratio>
import shardmesh.core;

using namespace shardmesh;
using namespace std::chrono_literals;

namespace {

using clock_type = std::chrono::steady_clock;

// Whether a limit of this length was given after `before`.
bool lasts(const time_limit& limit, clock_type::time_point before, clock_type::duration least) {
  return limit && *limit >= before + least && *limit <= clock_type::now() + least;
}

}  // namespace

TEST_CASE("a time limit is none by default, and for nullopt") {
  CHECK_FALSE(time_limit());
  CHECK_FALSE(time_limit(std::nullopt));
  CHECK(time_limit() == time_limit(std::nullopt));
  call_options call{.within = 1s};
  REQUIRE(call.within);
  call.within = std::nullopt;
  CHECK_FALSE(call.within);
}

TEST_CASE("a duration of any unit counts from the moment it is given") {
  const auto before = clock_type::now();
  CHECK(lasts(20s, before, 20s));
  CHECK(lasts(5min, before, 5min));
  CHECK(lasts(1h, before, 1h));
  CHECK(lasts(1ns, before, 1ns));
  CHECK(lasts(std::chrono::duration<double>(1.5), before, 1500ms));
  CHECK(lasts(std::chrono::duration<int, std::ratio<1, 4>>(3), before, 750ms));
  CHECK(lasts(std::chrono::duration<float, std::milli>(0.5F), before, 500us));
}

TEST_CASE("a time point is the limit, and limits are equal if their ends are") {
  const auto end = clock_type::now() + 1h;
  const call_options call{.within = end};
  REQUIRE(call.within);
  CHECK(*call.within == end);
  CHECK(time_limit(end) == call.within);
  CHECK(time_limit(end) != time_limit(end + 1ns));
  CHECK(time_limit(end) != time_limit());
  CHECK(*time_limit(clock_type::time_point::min()) == clock_type::time_point::min());
}

TEST_CASE("a zero or negative duration has passed") {
  for (const clock_type::duration length :
       {clock_type::duration(0), clock_type::duration(-1s), clock_type::duration::min()}) {
    const time_limit limit = length;
    CHECK(limit);
    CHECK(*limit <= clock_type::now());
  }
  CHECK(*time_limit(std::chrono::hours::min()) <= clock_type::now());
  CHECK(*time_limit(std::chrono::duration<double>(-std::numeric_limits<double>::infinity())) <= clock_type::now());
}

TEST_CASE("a duration beyond the clock's range gives the clock's last time") {
  constexpr auto last = clock_type::time_point::max();
  CHECK(*time_limit(std::chrono::hours::max()) == last);
  CHECK(*time_limit(clock_type::duration::max()) == last);
  CHECK(*time_limit(std::chrono::seconds::max()) == last);
  CHECK(*time_limit(std::chrono::duration<double>(1e300)) == last);
  CHECK(*time_limit(std::chrono::duration<double>(std::numeric_limits<double>::infinity())) == last);
  CHECK(*time_limit(std::chrono::duration<double>(std::numeric_limits<double>::quiet_NaN())) == last);
  // The longest durations that fit are exact.
  const auto before = clock_type::now();
  CHECK(lasts(last - before - 1h, before, last - before - 1h));
}

TEST_CASE("only durations, points of the steady clock, and nullopt are time limits") {
  STATIC_REQUIRE(std::convertible_to<std::chrono::minutes, time_limit>);
  STATIC_REQUIRE(std::convertible_to<clock_type::time_point, time_limit>);
  STATIC_REQUIRE(std::convertible_to<std::nullopt_t, time_limit>);
  STATIC_REQUIRE_FALSE(std::convertible_to<std::chrono::system_clock::time_point, time_limit>);
  STATIC_REQUIRE_FALSE(std::convertible_to<int, time_limit>);
  STATIC_REQUIRE_FALSE(std::convertible_to<time_limit, bool>);
}
