// SPDX-License-Identifier: Apache-2.0
// Tests many exchanges between threads in flight at once, and memory that threads lend each other.
// tests/distributed/conformance_test.cpp tests the rules for all transports.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <random_seed.hpp>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <watchdog.hpp>
import shardmesh.comm;

using namespace shardmesh;

namespace {

using bytes = std::vector<std::byte>;

// The n-th message from rank `from` to rank `to`, with its own pattern and length.
bytes speech(std::int32_t from, std::int32_t to, std::uint32_t n, std::size_t length) {
  std::mt19937_64 random(static_cast<std::uint64_t>(from) * 1'000'003U + static_cast<std::uint64_t>(to) * 1009U + n);
  bytes made(length);
  for (std::byte& b : made) b = static_cast<std::byte>(random());
  return made;
}

int runs() {
  return random_seed::runs_are_long() ? 300 : 20;
}

}  // namespace

TEST_CASE("messages match by peer and tag in call order, however many are in flight") {
  const watchdog dog(std::chrono::seconds(120));
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < runs(); ++round) {
    const auto size = static_cast<std::int32_t>(2 + random() % 7);
    const auto count = static_cast<std::uint32_t>(1 + random() % 40);
    const std::uint64_t plan_seed = random();
    // All ranks draw the same list: each exchange n has a tag, and each ordered pair of ranks may have a message in it.
    const auto length = [&](std::uint32_t n, std::int32_t from, std::int32_t to) -> std::size_t {
      std::mt19937_64 draw(plan_seed + n * 4099U + static_cast<std::uint64_t>(from * 64 + to));
      if (draw() % 3 == 0) return 0;
      return 1 + draw() % (draw() % 10 == 0 ? 200'000 : 100);
    };
    run_ranks(size, [&](any_communicator& comm) -> result<void> {
      const std::int32_t me = comm.rank();
      std::vector<std::vector<bytes>> out(count), in(count);
      std::vector<pending> flying;
      for (std::uint32_t n = 0; n < count; ++n) {
        std::vector<outgoing> sends;
        std::vector<incoming> receives;
        out[n].resize(static_cast<std::size_t>(size));
        in[n].resize(static_cast<std::size_t>(size));
        for (std::int32_t peer = 0; peer < size; ++peer) {
          if (peer == me) continue;
          const auto at = static_cast<std::size_t>(peer);
          out[n][at] = speech(me, peer, n, length(n, me, peer));
          in[n][at].resize(length(n, peer, me));
          if (!out[n][at].empty()) sends.push_back({peer, out[n][at]});
          if (!in[n][at].empty()) receives.push_back({peer, in[n][at]});
        }
        call_options options;
        options.tag = n % 3;
        auto started = comm.start_exchange(sends, receives, options);
        if (!started) return started.error();
        flying.push_back(*std::move(started));
      }
      // Each rank waits in its own order.
      std::vector<std::uint32_t> order(count);
      for (std::uint32_t n = 0; n < count; ++n) order[n] = n;
      std::mt19937_64 mine(plan_seed + static_cast<std::uint64_t>(me));
      std::shuffle(order.begin(), order.end(), mine);
      for (const std::uint32_t n : order) {
        if (n % 2 == 0)
          while (!flying[n].done()) std::this_thread::yield();
        if (auto waited = flying[n].wait(); !waited) return waited.error();
        for (std::int32_t peer = 0; peer < size; ++peer)
          if (peer != me && in[n][static_cast<std::size_t>(peer)] != speech(peer, me, n, length(n, peer, me)))
            return fail(errc::checksum_mismatch, "wrong message " + std::to_string(n)).with_rank(peer);
      }
      return {};
    }).value();
  }
}

namespace {

// Lends one row of numbers per piece.
struct rows final : lender {
  explicit rows(std::int32_t first) : values{first, first + 1, first + 2, first + 3} {}
  const_tensor_view piece(std::size_t index) const override {
    return {reinterpret_cast<const std::byte*>(values + 2 * index), dtype::int32, {}, {2}, {1}};
  }
  std::int32_t values[4];
};

std::int32_t value_at(const const_tensor_view& view, std::int64_t i) {
  std::int32_t value = 0;
  std::memcpy(&value, view.data + i * view.strides[0] * 4, 4);
  return value;
}

}  // namespace

TEST_CASE("lent memory is read in place, and its owner waits until the reader is through") {
  const watchdog dog(std::chrono::seconds(60));
  for (int round = 0; round < 100; ++round)
    run_ranks(4, [&](any_communicator& comm) -> result<void> {
      const std::int32_t me = comm.rank();
      if (!comm.shares_memory()) return fail(errc::unsupported, "threads share memory");
      rows mine(100 * me);
      std::vector<lent> lends;
      std::vector<borrowed> borrows;
      for (std::int32_t peer = 0; peer < 4; ++peer)
        if (peer != me) {
          lends.push_back({peer, &mine, 16});
          borrows.push_back({peer, 16});
        }
      auto started = comm.start_lending(lends, borrows, {});
      if (!started) return started.error();
      if (auto ready = started->wait_ready(); !ready) return ready;
      for (std::size_t i = 0; i < borrows.size(); ++i)
        if (value_at(started->from(i).piece(1), 1) != 100 * borrows[i].peer + 3)
          return fail(errc::checksum_mismatch, "wrong value");
      started->give_back();
      if (auto waited = started->wait(); !waited) return waited;
      std::memset(mine.values, 0xff, sizeof mine.values);  // all readers are done
      return {};
    }).value();
}
