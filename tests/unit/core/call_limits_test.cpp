// SPDX-License-Identifier: Apache-2.0
// Tests the limits of a call: which of them is reached, and the errors of work that a limit ends.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <stop_token>
#include <string>
import shardmesh.core;

using namespace shardmesh;
using namespace std::chrono_literals;

namespace {

using clock_type = std::chrono::steady_clock;

call_options until(clock_type::time_point deadline) {
  call_options made;
  made.within = deadline;
  return made;
}

}  // namespace

TEST_CASE("a call without a deadline and a cancellation reaches no limit, and has no time of its beginning") {
  const detail::call_limits limits{call_options{}};
  CHECK(limits.reached() == errc::ok);
  CHECK(limits.reached(clock_type::time_point::max()) == errc::ok);
  CHECK(limits.began == clock_type::time_point{});
  CHECK(detail::check_limits({}, "load"));
}

TEST_CASE("a deadline is reached at its time, and the call knows when it began") {
  const auto before = clock_type::now();
  const detail::call_limits limits(until(before + 1h));
  CHECK(limits.began >= before);
  CHECK(limits.began <= clock_type::now());
  CHECK(limits.reached() == errc::ok);
  CHECK(limits.reached(before + 1h - 1ns) == errc::ok);
  CHECK(limits.reached(before + 1h) == errc::deadline_exceeded);
  CHECK(detail::call_limits(until(before)).reached() == errc::deadline_exceeded);
}

TEST_CASE("a cancellation comes before a deadline that is reached as well") {
  std::stop_source stop;
  call_options call = until(clock_type::now());
  call.cancel = stop.get_token();
  const detail::call_limits limits(call);
  CHECK(limits.reached() == errc::deadline_exceeded);
  CHECK(detail::limit_reached(call.cancel, call.within) == errc::deadline_exceeded);
  stop.request_stop();
  CHECK(limits.reached() == errc::cancelled);
  CHECK(limits.reached(limits.began) == errc::cancelled);
  CHECK(detail::limit_reached(call.cancel, call.within) == errc::cancelled);
}

TEST_CASE("the error of work that a limit ends names the work") {
  std::stop_source stop;
  call_options call = until(clock_type::now());
  call.cancel = stop.get_token();
  const auto late = detail::check_limits(call, "load");
  REQUIRE_FALSE(late);
  CHECK(late.error() == fail(errc::deadline_exceeded, "the load's deadline has passed"));
  stop.request_stop();
  const auto cancelled = detail::check_limits(call, "load");
  REQUIRE_FALSE(cancelled);
  CHECK(cancelled.error() == fail(errc::cancelled, "the load was cancelled"));
  CHECK(detail::limit_error(errc::cancelled, "save", " while it waited").message ==
        "the save was cancelled while it waited");
  CHECK(detail::limit_error(errc::deadline_exceeded, "save", " while it waited").message ==
        "the save's deadline has passed while it waited");
}

TEST_CASE("a length of time is in milliseconds below a second") {
  CHECK(detail::duration_text(0ms) == "0 ms");
  CHECK(detail::duration_text(1500us) == "1.5 ms");
  CHECK(detail::duration_text(250ms) == "250 ms");
  CHECK(detail::duration_text(1250ms) == "1.25 s");
  CHECK(detail::duration_text(20s) == "20 s");
}
