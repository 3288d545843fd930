// SPDX-License-Identifier: Apache-2.0
// Tests that a rank without memory can still end its group. This program's operator new fails on demand.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <watchdog.hpp>

#include "counted_new.hpp"

import shardmesh.shared_memory;

using namespace shardmesh;

TEST_CASE("a rank without memory poisons its group with its error's code") {
  SKIP_WHERE_NOTHING_IS_COUNTED();
  const watchdog dog{std::chrono::seconds(60)};
  const auto group = shared_memory_group::make(2).value();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::optional<shared_memory_communicator> zero, one;
  std::jthread other([&] { one = shared_memory_communicator::join(group.token(), 1, {.within = deadline}).value(); });
  zero = shared_memory_communicator::join(group.token(), 0, {.within = deadline}).value();
  other.join();
  const error reason = fail(errc::io, std::string(1000, 'x'));
  counted_new::has_no_memory = true;
  zero->abort(reason);
  counted_new::has_no_memory = false;
  CHECK(zero->status().error().code == errc::io);
  const error told = one->status().error();
  CHECK(told.code == errc::io);
  CHECK(told.ranks == std::vector<std::int32_t>{0});
  CHECK(one->all_gather({}, {.within = deadline}).error() == told);
}
