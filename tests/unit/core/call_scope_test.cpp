// SPDX-License-Identifier: Apache-2.0
// Tests the limits that a thread works under: which count in nested scopes, who takes them over, and what is left for
// the removal of leftovers. Then the lock whose wait obeys them.
#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <tuple>

import shardmesh.core;

using namespace shardmesh;
using namespace std::chrono_literals;
using detail::call_scope;

namespace {

using clock_type = std::chrono::steady_clock;

errc reached() {
  const detail::call_in_progress* const call = detail::current_call();
  return call == nullptr ? errc::ok : detail::limit_reached(call->limits.cancel, call->limits.within);
}

}  // namespace

TEST_CASE("a thread has the limits of its innermost scope, and none outside of scopes") {
  CHECK(detail::current_call() == nullptr);
  CHECK(detail::check_current_call());
  {
    const call_scope outer({.within = clock_type::now() - 1s, .name = "load"});
    REQUIRE(detail::current_call() != nullptr);
    CHECK(&detail::current_call()->limits == &outer.limits());
    const auto late = detail::check_current_call();
    REQUIRE(!late);
    CHECK(late.error().code == errc::deadline_exceeded);
    CHECK(late.error().message.starts_with("the load's deadline has passed after "));
    CHECK(detail::is_limit_error(late.error()));
    bool has_limits = true;
    std::thread([&] { has_limits = detail::current_call() != nullptr; }).join();
    CHECK(!has_limits);
  }
  CHECK(detail::current_call() == nullptr);
}

TEST_CASE("of nested scopes, the earliest deadline counts, with the name of its call") {
  const auto now = clock_type::now();
  for (const auto& [outer_end, inner_end, end, name] :
       {std::tuple{time_limit(now + 1h), time_limit(now + 2h), time_limit(now + 1h), "outer"},
        std::tuple{time_limit(now + 2h), time_limit(now + 1h), time_limit(now + 1h), "inner"},
        std::tuple{time_limit(now + 1h), time_limit(now + 1h), time_limit(now + 1h), "outer"},
        std::tuple{time_limit(now + 1h), time_limit(), time_limit(now + 1h), "outer"},
        std::tuple{time_limit(), time_limit(now + 1h), time_limit(now + 1h), "inner"},
        std::tuple{time_limit(), time_limit(), time_limit(), "inner"}}) {
    const call_scope outer({.within = outer_end, .name = "outer"});
    const call_scope inner({.within = inner_end, .name = "inner"});
    CHECK(inner.limits().within == end);
    CHECK(std::string(inner.limits().name) == name);
  }
  const call_scope outer({.name = "outer"});
  const call_scope nameless({.cancel = {}});
  CHECK(std::string(nameless.limits().name) == "outer");
}

TEST_CASE("the error of a limit names the call, the time since it began, and what it waited for") {
  std::stop_source stop;
  const call_scope load({.within = 1h, .cancel = stop.get_token(), .name = "load"});
  const auto began = detail::current_call()->began;
  CHECK(clock_type::now() - began < 1h);
  const call_scope request({.name = "request"});
  CHECK(detail::current_call()->began == began);
  const error late = request.limit_error(errc::deadline_exceeded, "the answer to GET");
  CHECK(late.code == errc::deadline_exceeded);
  CHECK(late.message.starts_with("the load's deadline has passed after "));
  CHECK(late.message.ends_with(", while it waited for the answer to GET"));
  const error cancelled = request.limit_error(errc::cancelled, "the answer to PUT");
  CHECK(cancelled.code == errc::cancelled);
  CHECK(cancelled.message.starts_with("the load was cancelled after "));
}

TEST_CASE("a call without limits that runs under a cancellation began when the outer call did") {
  std::stop_source stop;
  const call_scope outer({.cancel = stop.get_token()});
  const auto began = detail::current_call()->began;
  CHECK(began != clock_type::time_point());
  {
    const call_scope inner({.name = "verification"});
    CHECK(detail::current_call()->began == began);
    CHECK(std::string(inner.limits().name) == "verification");
  }
  const call_scope limited({.within = 1h, .name = "load"});
  CHECK(detail::current_call()->began >= began);
}

TEST_CASE("a cancellation of any scope ends the innermost one") {
  for (const bool cancels_outer : {false, true}) {
    std::stop_source first, second;
    const call_scope outer({.cancel = first.get_token()});
    const call_scope same({.cancel = first.get_token()});
    const call_scope without_token({.within = 1h});
    const call_scope inner({.cancel = second.get_token()});
    CHECK(reached() == errc::ok);
    (cancels_outer ? first : second).request_stop();
    CHECK(reached() == errc::cancelled);
    CHECK(same.limits().cancel.stop_requested() == cancels_outer);
    CHECK(without_token.limits().cancel.stop_requested() == cancels_outer);
  }
}

TEST_CASE("the helpers of parallel_for work under the limits of the thread that waits for them") {
  std::stop_source stop;
  const call_scope scope({.cancel = stop.get_token(), .name = "load"});
  std::atomic<int> with_limits = 0, together = 0;
  const auto done = parallel_for(4, 4, [&](std::int64_t) -> result<void> {
    ++together;
    const auto began = clock_type::now();  // a second thread may not start; the others then take its work
    while (together < 2 && clock_type::now() - began < 10s) std::this_thread::yield();
    if (detail::current_call() != nullptr && &detail::current_call()->limits == &scope.limits()) ++with_limits;
    return {};
  });
  CHECK(done);
  CHECK(with_limits == 4);
  CHECK(&detail::current_call()->limits == &scope.limits());
}

TEST_CASE("the removal of leftovers has a second after a limit, and else the limits of the call") {
  {
    const detail::cleanup_scope none;
    CHECK(reached() == errc::ok);
    CHECK(!detail::current_call()->limits.within);
  }
  std::stop_source stop;
  for (const bool is_cancelled : {false, true}) {
    if (is_cancelled) stop.request_stop();
    const call_scope late({.within = clock_type::now() - 1s, .cancel = stop.get_token(), .name = "save"});
    CHECK(reached() == (is_cancelled ? errc::cancelled : errc::deadline_exceeded));
    const auto before = clock_type::now();
    const detail::cleanup_scope cleanup;
    CHECK(reached() == errc::ok);
    REQUIRE(detail::current_call()->limits.within);
    CHECK(*detail::current_call()->limits.within >= before + 1s);
    CHECK(*detail::current_call()->limits.within <= clock_type::now() + 1s);
    CHECK(std::string(detail::current_call()->limits.name) == "save");
  }
  const auto end = clock_type::now() + 1h;
  const call_scope early({.within = end});
  const detail::cleanup_scope cleanup;
  CHECK(*detail::current_call()->limits.within == end);
}

TEST_CASE("a wait ends at its time, and sooner at a limit") {
  auto began = clock_type::now();
  detail::wait_within_limits(20ms);
  CHECK(clock_type::now() - began >= 20ms);
  began = clock_type::now();
  {
    const call_scope scope({.within = 20ms});
    detail::wait_within_limits(1h);
  }
  CHECK(clock_type::now() - began < 10s);
  std::stop_source stop;
  const std::jthread stopper([&] { stop.request_stop(); });
  const call_scope scope({.cancel = stop.get_token()});
  detail::wait_within_limits(1h);
  CHECK(stop.stop_requested());
}

TEST_CASE("one thread at a time holds a call_lock") {
  detail::call_lock lock;
  std::int64_t count = 0;
  const auto done = parallel_for(4, 4, [&](std::int64_t) -> result<void> {
    for (int i = 0; i < 1000; ++i) {
      const auto held = lock.acquire();
      if (!held) return held.error();
      ++count;
    }
    return {};
  });
  CHECK(done);
  CHECK(count == 4000);
}

TEST_CASE("the wait for a call_lock ends at the limits of the waiting call, and leaves the lock as it is") {
  detail::call_lock lock;
  std::optional<result<detail::call_lock::guard>> held(lock.acquire());
  REQUIRE(*held);
  {
    const call_scope scope({.within = 20ms, .name = "load"});
    const auto late = lock.acquire();
    REQUIRE(!late);
    CHECK(late.error().code == errc::deadline_exceeded);
    CHECK(late.error().message == "the load's deadline has passed while it waited for a request of another call");
  }
  std::stop_source stop;
  {
    const call_scope scope({.cancel = stop.get_token()});
    const std::jthread stopper([&] { stop.request_stop(); });
    const auto cancelled = lock.acquire();
    REQUIRE(!cancelled);
    CHECK(cancelled.error().code == errc::cancelled);
  }
  held.reset();
  const call_scope scope({.within = 10s});
  CHECK(lock.acquire());
}
