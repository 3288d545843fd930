// SPDX-License-Identifier: Apache-2.0
// Tests the frame of calls with rounds: exceptions become errors, and no rank waits for one that is gone.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <vector>
#include <watchdog.hpp>
import shardmesh.comm;

using namespace shardmesh;
using namespace std::chrono_literals;

TEST_CASE("an exception of a rank's own part becomes its error") {
  const auto exhausted = detail::guarded([]() -> result<void> { throw std::bad_alloc(); });
  REQUIRE(!exhausted);
  CHECK(exhausted.error().code == errc::no_memory);
  const auto failed = detail::guarded([]() -> result<void> { throw std::runtime_error("no luck"); });
  REQUIRE(!failed);
  CHECK(failed.error().message == "an exception was thrown: no luck");
  CHECK(detail::guarded([]() -> result<void> { return {}; }));
}

TEST_CASE("the error of a cancelled rank reaches every rank in the next round") {
  const watchdog dog(30s);
  std::vector<std::optional<error>> got(3);
  static_cast<void>(run_ranks(3, [&](any_communicator& comm) -> result<void> {
    std::stop_source stop;
    result<void> mine;
    if (comm.rank() == 1) {
      stop.request_stop();
      mine = fail(errc::cancelled, "the caller cancelled");
    }
    const auto told = detail::settle_round(comm, {.cancel = stop.get_token()}, mine, {.what = "options"}, {});
    if (!told) got[static_cast<std::size_t>(comm.rank())] = told.error();
    return {};
  }));
  for (const std::optional<error>& one : got) {
    REQUIRE(one.has_value());
    CHECK(one->code == errc::cancelled);
    CHECK(one->message == "the caller cancelled");
    CHECK(one->ranks == std::vector<std::int32_t>{1});
  }
}
