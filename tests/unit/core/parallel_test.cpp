// SPDX-License-Identifier: Apache-2.0
// Tests parallel_for: it does every piece of work once, and of several failures it returns the first in order.
#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

import shardmesh.core;

using namespace shardmesh;
using namespace std::chrono_literals;

namespace {

// Waits at most ten seconds until `there` is true, which never happens where no second thread could start.
bool comes(const std::atomic<bool>& there) {
  for (int i = 0; i < 10'000 && !there; ++i) std::this_thread::sleep_for(1ms);
  return there;
}

}  // namespace

TEST_CASE("every piece of work is done once, with any number of threads") {
  for (const int threads : {0, 1, 2, 7}) {
    for (const std::int64_t count : {0, 1, 5, 1000}) {
      std::vector<std::atomic<int>> done(static_cast<std::size_t>(count));
      const auto all = parallel_for(threads, count, [&](std::int64_t i) -> result<void> {
        ++done[static_cast<std::size_t>(i)];
        return {};
      });
      CHECK(all);
      for (const auto& times : done) CHECK(times == 1);
    }
  }
}

TEST_CASE("of two failures the first in order is returned, also where it comes later") {
  for (const bool throws : {false, true}) {
    std::atomic<bool> second_failed{false};
    const auto done = parallel_for(2, 2, [&](std::int64_t i) -> result<void> {
      if (i == 1) {
        second_failed = true;
        return fail(errc::io, "the second");
      }
      if (!comes(second_failed)) return fail(errc::io, "there is only one thread");
      std::this_thread::sleep_for(50ms);  // by now, the second piece's error is recorded
      if (throws) throw std::runtime_error("the first, thrown");
      return fail(errc::io, "the first");
    });
    REQUIRE_FALSE(done);
    CHECK(done.error().message == (throws ? "the first, thrown" : "the first"));
  }
}

TEST_CASE("no work begins after a failure") {
  std::atomic<std::int64_t> begun{0};
  const auto done = parallel_for(1, 100, [&](std::int64_t i) -> result<void> {
    ++begun;
    return i == 3 ? result<void>(fail(errc::io, "no luck")) : result<void>();
  });
  REQUIRE_FALSE(done);
  CHECK(begun == 4);
}
