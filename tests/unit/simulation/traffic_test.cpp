// SPDX-License-Identifier: Apache-2.0
// The counts of simulated ranks are exact, and two runs of one program are equal.
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <random_seed.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include <watchdog.hpp>
import shardmesh.simulation;

using namespace shardmesh;
using namespace std::chrono_literals;

namespace {

using bytes = std::vector<std::byte>;

// A message of rank a to rank b is filled with 16 a + b.
bytes message_of(std::int32_t from, std::int32_t to, std::size_t size) {
  return bytes(size, static_cast<std::byte>(16 * from + to));
}

// Exchanges messages of random sizes between random pairs of ranks, with all_gathers in between.
struct random_program {
  std::uint64_t seed;

  result<void> operator()(any_communicator& comm) const {
    std::mt19937_64 dice(seed);  // the same on every rank
    for (int round = 0; round < 40; ++round) {
      const auto mask = static_cast<std::int32_t>(1 + dice() % 7);
      const std::int32_t peer = comm.rank() ^ mask;
      const std::size_t upward = 1 + dice() % 300, downward = 1 + dice() % 300;
      const bool gathers = dice() % 4 == 0;
      const bytes sent = message_of(comm.rank(), peer, comm.rank() < peer ? upward : downward);
      bytes received(comm.rank() < peer ? downward : upward);
      const outgoing send{peer, sent};
      const incoming receive{peer, received};
      auto started = comm.start_exchange({&send, 1}, {&receive, 1}, {.tag = static_cast<std::uint32_t>(round)});
      if (!started) return started.error();
      if (gathers)
        if (const auto all = comm.all_gather(sent, {}); !all) return all.error();
      if (auto done = started->wait(); !done) return done;
      if (received != message_of(peer, comm.rank(), received.size()))
        return fail(errc::checksum_mismatch, "a message has other bytes");
    }
    return {};
  }
};

}  // namespace

TEST_CASE("the counts and the trace of a small exchange are exact") {
  const watchdog dog(60s);
  // Rank 0 sends 10 bytes to rank 1 and 20 bytes to rank 2, and gets 5 bytes from rank 2. All gather their rank's
  // bytes.
  const auto program = [](any_communicator& comm) -> result<void> {
    const bytes ten(10), twenty(20), five(5);
    bytes room(comm.rank() == 0 ? 5 : comm.rank() * 10);
    std::vector<outgoing> sends;
    if (comm.rank() == 0) sends = {{1, ten}, {2, twenty}};
    if (comm.rank() == 2) sends = {{0, five}};
    const incoming receive{comm.rank() == 0 ? 2 : 0, room};
    auto started = comm.start_exchange(sends, {&receive, 1}, {.tag = 4});
    if (!started) return started.error();
    if (auto done = started->wait(); !done) return done;
    const auto all = comm.all_gather(bytes(static_cast<std::size_t>(comm.rank())), {.tag = 9});
    if (!all) return all.error();
    return {};
  };
  const auto report = simulate_ranks(3, program, {.network = {0ns, 0ns, 1'000'000'000}, .trace = true}).value();
  // Links: rank 0 sends 0..10 and 10..30 ns, and rank 2 sends 0..5 ns. Rank 2 then has its 20 bytes at 30 ns. The
  // all_gather begins at 30 ns, and takes a nanosecond for each byte of the others.
  using what = simulation_event::what;
  const rank_traffic first{2, 30, 1, 5, 1, 1, 3, 0, 33ns}, second{0, 0, 1, 10, 1, 1, 2, 1, 32ns},
      third{1, 5, 1, 20, 1, 1, 1, 2, 31ns};
  CHECK(report.ranks == std::vector{first, second, third});
  CHECK(report.critical_path() == 33ns);
  const auto events_of = [&](std::int32_t rank) {
    std::vector<std::string> texts;
    for (const simulation_event& one : report.events)
      if (one.rank == rank) texts.push_back(to_string(one));
    return texts;
  };
  CHECK(report.events.size() == 9);
  CHECK(std::count_if(report.events.begin(), report.events.end(),
                      [](const simulation_event& one) { return one.kind == what::gathered; }) == 3);
  CHECK(events_of(0) == std::vector<std::string>{"0 ns: rank 0 sent 10 bytes to rank 1 (tag 4)",
                                                 "10 ns: rank 0 sent 20 bytes to rank 2 (tag 4)",
                                                 "5 ns: rank 0 received 5 bytes from rank 2 (tag 4)",
                                                 "33 ns: rank 0 left an all_gather of its 0 bytes (tag 9)"});
  CHECK(events_of(1) == std::vector<std::string>{"10 ns: rank 1 received 10 bytes from rank 0 (tag 4)",
                                                 "32 ns: rank 1 left an all_gather of its 1 byte (tag 9)"});
  CHECK(events_of(2) == std::vector<std::string>{"0 ns: rank 2 sent 5 bytes to rank 0 (tag 4)",
                                                 "30 ns: rank 2 received 20 bytes from rank 0 (tag 4)",
                                                 "31 ns: rank 2 left an all_gather of its 2 bytes (tag 9)"});
}

TEST_CASE("two runs of a random program have equal reports and traces") {
  const watchdog dog(120s);
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  for (std::uint64_t round = 0; round < random_seed::rounds(5); ++round) {
    const random_program program{seed + round};
    const auto once = simulate_ranks(8, program, {.trace = true}), again = simulate_ranks(8, program, {.trace = true});
    REQUIRE(once.has_value());
    REQUIRE(again.has_value());
    CHECK(*once == *again);
    CHECK(once->critical_path() > 0ns);
    for (const rank_traffic& one : once->ranks) {
      CHECK(one.sent_messages == 40);
      CHECK(one.received_messages == 40);
      CHECK(one.exchanges == 40);
    }
  }
}

TEST_CASE("messages that are never sent are not counted as received") {
  const watchdog dog(60s);
  const auto report = simulate_ranks(2, [](any_communicator& comm) -> result<void> {
    bytes room(8);
    const incoming receive{1 - comm.rank(), room};
    auto started = comm.start_exchange({}, {&receive, 1}, {});
    if (!started) return started.error();
    CHECK_FALSE(started->wait().has_value());  // a deadlock
    return {};
  });
  REQUIRE(report.has_value());
  CHECK(report->ranks == std::vector(2, rank_traffic{.exchanges = 1}));
}
