// SPDX-License-Identifier: Apache-2.0
// Limits of a staging pool: saves that wait or are refused, their deadlines and cancellation, kept and evicted memory,
// and ranks that share a pool by mistake. Ranks are threads here.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <random_seed.hpp>
#include <rank_folder.hpp>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>
#include <watchdog.hpp>
import shardmesh.collective_checkpoint;
import shardmesh.test.saving;

using namespace shardmesh;
using namespace saving;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

// One rank's tensor, saved into a pool; the save writes nothing before `go_on`.
struct held_up_save {
  held_up_save(const fs::path& folder, const staging_pool& pool, std::size_t size_bytes, std::uint8_t value,
               const call_options& call = {})
      : group(1), comm(group.communicator(0)), checkpoint(folder), memory(size_bytes, static_cast<std::byte>(value)) {
    const auto size = static_cast<std::int64_t>(size_bytes);
    local_state held;
    held.tensors.push_back(
        {{"w"}, {size}, dtype::uint8, {{{{0}, {size}}, {memory.data(), dtype::uint8, {}, {size}, {1}}}}});
    rank_save_options options{
        .durable = false, .threads = 1, .within = call.within, .cancel = call.cancel, .staging = pool};
    options.before = [gate = go.get_future().share()](save_phase now) -> result<void> {
      if (now == save_phase::stage) gate.wait();
      return {};
    };
    saving = start_save(checkpoint, held, comm, options);
    std::fill(memory.begin(), memory.end(), std::byte{0});
  }
  held_up_save(const held_up_save&) = delete;
  ~held_up_save() { go_on(); }

  void go_on() {
    if (!std::exchange(may_go, true)) go.set_value();
  }
  // Returns "" if every saved byte is `value`.
  std::string finish(std::uint8_t value) {
    go_on();
    if (!saving) return to_string(saving.error());
    if (!saving->wait()) return text_of(saving->wait().error().problems());
    const auto reader = open_checkpoint(checkpoint).value();
    const host_tensor stored = load_tensor(*reader, "w").value();
    const auto is_value = [&](std::byte b) { return b == static_cast<std::byte>(value); };
    return std::all_of(stored.bytes().begin(), stored.bytes().end(), is_value) ? "" : "other bytes were saved";
  }
  std::string refusal() const { return saving ? "nothing is refused" : to_string(saving.error()); }

  thread_group group;
  any_communicator comm;
  fs::path checkpoint;
  std::vector<std::byte> memory;
  std::promise<void> go;
  bool may_go = false;
  result<save_in_progress> saving = fail(errc::invalid_argument, "not started");
};

void until_waiting(const staging_pool& pool) {
  while (pool.use().waiting == 0) std::this_thread::yield();
}

}  // namespace

TEST_CASE("a full pool refuses a save naming what it has and what was asked for") {
  const fabric::rank_folder folder("pool-refuses");
  const staging_pool pool =
      staging_pool::make({.max_bytes = 10'000, .max_saves = 2, .when_full = full_staging::refuse}).value();
  held_up_save first(folder.path / "first", pool, 6'400, 1);
  REQUIRE(first.saving);
  CHECK(held_up_save(folder.path / "second", pool, 6'400, 2).refusal() ==
        "the staging pool is full (rank 0): expected at most 2 saves and 9.8 KiB, found one save under way with 6.2 "
        "KiB; another one of 6.2 KiB");
  held_up_save third(folder.path / "third", pool, 640, 3);
  CHECK(pool.use() == staging_use{.saves = 2, .used_bytes = 7'040, .taken = 2});
  CHECK(held_up_save(folder.path / "fourth", pool, 1, 4).refusal().starts_with("the staging pool is full (rank 0)"));
  CHECK(first.finish(1) == "");
  CHECK(third.finish(3) == "");
  CHECK(pool.use() == staging_use{.kept_bytes = 7'040, .taken = 2});
  CHECK_FALSE(fs::exists(folder.path / "second"));
}

TEST_CASE("a save waits until one that is under way has ended, whether anybody waits for that or not") {
  const watchdog dog(60s);
  const fabric::rank_folder folder("pool-waits");
  const staging_pool pool = staging_pool::make({.max_saves = 1}).value();
  std::optional<held_up_save> first(std::in_place, folder.path / "first", pool, 640, 1);
  REQUIRE(first->saving);
  std::string wrong = "it did not start";
  std::thread second([&] { wrong = held_up_save(folder.path / "second", pool, 640, 2).finish(2); });
  until_waiting(pool);
  CHECK_FALSE(fs::exists(folder.path / "second"));
  first->go_on();
  second.join();
  CHECK(wrong == "");
  CHECK(first->finish(1) == "");
  CHECK(pool.use() == staging_use{.kept_bytes = 640, .taken = 1});
}

TEST_CASE("a deadline and a cancellation reach a save that waits for staging") {
  const watchdog dog(60s);
  const fabric::rank_folder folder("pool-stops");
  const staging_pool pool = staging_pool::make({.max_bytes = 1'000, .max_saves = 2}).value();
  held_up_save first(folder.path / "first", pool, 640, 1);
  REQUIRE(first.saving);
  const std::string late = held_up_save(folder.path / "late", pool, 640, 2, {.within = 100ms}).refusal();
  CHECK(late ==
        "the save's deadline has passed while it waited for staging (rank 0): expected at most 2 saves and 1000 bytes, "
        "found "
        "one save under way with 640 bytes; another one of 640 bytes");
  std::stop_source source;
  std::string cancelled;
  std::thread waiting([&] {
    cancelled = held_up_save(folder.path / "cancelled", pool, 640, 3, {.cancel = source.get_token()}).refusal();
  });
  until_waiting(pool);
  source.request_stop();
  waiting.join();
  CHECK(cancelled.starts_with("the save was cancelled while it waited for staging (rank 0)"));
  CHECK(first.finish(1) == "");
  CHECK(held_up_save(folder.path / "next", pool, 640, 4).finish(4) == "");
}

TEST_CASE("memory that is too small makes way, what nobody uses is released, and a pool outlives its handles") {
  const fabric::rank_folder folder("pool-keeps");
  std::optional<staging_pool> pool = staging_pool::make({.max_saves = 2}).value();
  CHECK(held_up_save(folder.path / "a", *pool, 640, 1).finish(1) == "");
  CHECK(held_up_save(folder.path / "b", *pool, 6'400, 2).finish(2) == "");  // beside the small buffer
  CHECK(pool->use() == staging_use{.kept_bytes = 7'040, .taken = 2});
  CHECK(held_up_save(folder.path / "c", *pool, 6'464, 3).finish(3) == "");  // replaces the smallest buffer
  CHECK(pool->use() == staging_use{.kept_bytes = 12'864, .taken = 3});
  CHECK(held_up_save(folder.path / "d", *pool, 64, 4).finish(4) == "");  // uses the smallest buffer that is big enough
  CHECK(pool->use() == staging_use{.kept_bytes = 12'864, .taken = 3});
  held_up_save last(folder.path / "e", *pool, 6'464, 5);
  CHECK(pool->release() == 6'400);
  CHECK(pool->use() == staging_use{.saves = 1, .used_bytes = 6'464, .taken = 3});
  pool.reset();
  CHECK(last.finish(5) == "");
}

TEST_CASE("ranks that share a pool are told so, and do not wait for each other") {
  const watchdog dog(60s);
  const fabric::rank_folder folder("pool-shared");
  const staging_pool pool = staging_pool::make({.max_saves = 1}).value();
  const auto ran = run_ranks(2, [&](any_communicator& comm) -> result<void> {
    rows mine(comm.rank(), comm.size(), 1);
    const auto saving = start_save(folder.path / "step", mine.state, comm, {.staging = pool});
    return saving ? result<void>() : saving.error();
  });
  REQUIRE_FALSE(ran);
  CHECK(ran.error().code == errc::invalid_argument);
  CHECK(to_string(ran.error()).ends_with("make a pool for each rank"));
  CHECK(pool.use().saves == 0);
}

TEST_CASE("a pool of nothing is refused") {
  CHECK(
      to_string(staging_pool::make({.max_saves = 0}).error()) ==
      "a staging pool must have room for at least one save, and its number of bytes cannot be negative: found 0 saves, "
      "0 bytes");
  CHECK(staging_pool::make({.max_bytes = -1}).error().code == errc::invalid_argument);
  CHECK(staging_pool().is_none());
}

TEST_CASE("random saves through a pool: each writes its own bytes, and the pool stays within its bounds") {
  const fabric::rank_folder folder("pool-random");
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  const std::int64_t max_bytes = 20'000;
  staging_pool pool =
      staging_pool::make({.max_bytes = max_bytes, .max_saves = 3, .when_full = full_staging::refuse}).value();
  struct running {
    std::unique_ptr<held_up_save> save;
    std::uint8_t value;
    std::int64_t bytes;
  };
  std::deque<running> under_way;
  std::int32_t refused = 0;
  const auto end = [&](std::size_t which) {
    CHECK(under_way[which].save->finish(under_way[which].value) == "");
    under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(which));
  };
  for (std::uint64_t step = 0; step < random_seed::rounds(60); ++step) {
    if (!under_way.empty() && random() % 3 == 0) end(random() % under_way.size());
    const std::size_t bytes = random() % 8 == 0 ? 0 : 64 * (random() % 200);
    const auto value = static_cast<std::uint8_t>(1 + random() % 255);
    const staging_use before = pool.use();
    auto now = std::make_unique<held_up_save>(folder.path / std::to_string(step), pool, bytes, value);
    // A save in kept memory uses all of it, so the space left is what used memory leaves.
    const bool fits = before.saves < 3 && before.used_bytes + static_cast<std::int64_t>(bytes) <= max_bytes;
    CHECK(now->saving.has_value() == fits);
    if (fits)
      under_way.push_back({std::move(now), value, static_cast<std::int64_t>(bytes)});
    else
      ++refused;
    const staging_use use = pool.use();
    std::int64_t asked = 0;
    for (const running& one : under_way) asked += one.bytes;
    CHECK(std::cmp_equal(use.saves, under_way.size()));
    CHECK(use.used_bytes >= asked);
    CHECK(use.used_bytes + use.kept_bytes <= max_bytes);
  }
  while (!under_way.empty()) end(0);
  CHECK(refused > 0);
  CHECK(pool.use().used_bytes == 0);
  const std::int64_t kept = pool.use().kept_bytes;
  CHECK(pool.release() == kept);
  CHECK(pool.use().kept_bytes == 0);
}
