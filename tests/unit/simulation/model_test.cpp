// SPDX-License-Identifier: Apache-2.0
// The modelled times of simulated ranks equal formulas that are worked out by hand.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include <watchdog.hpp>
import shardmesh.simulation;

using namespace shardmesh;
using namespace std::chrono_literals;

namespace {

using std::chrono::nanoseconds;

// One byte takes a nanosecond.
constexpr network_model network_with(nanoseconds overhead) {
  return {.latency = 1000ns, .overhead = overhead, .bytes_per_second = 1'000'000'000};
}

result<void> exchange(any_communicator& comm, std::span<const outgoing> sends, std::span<const incoming> receives) {
  auto started = comm.start_exchange(sends, receives, {});
  if (!started) return started.error();
  return started->wait();
}

// Runs a program, and returns the modelled time at which each rank finished.
std::vector<nanoseconds> finished(std::int32_t size, const network_model& network,
                                  function_ref<result<void>(any_communicator&)> body) {
  const watchdog dog(60s);
  const simulation_report report = simulate_ranks(size, body, {.network = network}).value();
  std::vector<nanoseconds> made;
  for (const rank_traffic& one : report.ranks) made.push_back(one.finished);
  CHECK(report.critical_path() == *std::max_element(made.begin(), made.end()));
  return made;
}

// Every rank but the first receives k bytes from the rank before it, and then sends k bytes to the rank after it.
auto chain_of(std::size_t k) {
  return [k](any_communicator& comm) -> result<void> {
    std::vector<std::byte> bytes(k);
    if (comm.rank() > 0) {
      const incoming one{comm.rank() - 1, bytes};
      if (auto done = exchange(comm, {}, {&one, 1}); !done) return done;
    }
    if (comm.rank() + 1 == comm.size()) return {};
    const outgoing one{comm.rank() + 1, bytes};
    return exchange(comm, {&one, 1}, {});
  };
}

// Every other rank sends k bytes to rank 0, which receives all of them in one exchange.
auto star_of(std::size_t k) {
  return [k](any_communicator& comm) -> result<void> {
    std::vector<std::byte> bytes(k);
    if (comm.rank() > 0) {
      const outgoing one{0, bytes};
      return exchange(comm, {&one, 1}, {});
    }
    std::vector<std::vector<std::byte>> rooms(static_cast<std::size_t>(comm.size()), std::vector<std::byte>(k));
    std::vector<incoming> receives;
    for (std::int32_t peer = 1; peer < comm.size(); ++peer)
      receives.push_back({peer, rooms[static_cast<std::size_t>(peer)]});
    return exchange(comm, {}, receives);
  };
}

// Every rank sends k bytes to every other rank, first to the next one.
auto all_to_all_of(std::size_t k) {
  return [k](any_communicator& comm) -> result<void> {
    const std::vector<std::byte> bytes(k);
    std::vector<std::vector<std::byte>> rooms(static_cast<std::size_t>(comm.size()), std::vector<std::byte>(k));
    std::vector<outgoing> sends;
    std::vector<incoming> receives;
    for (std::int32_t step = 1; step < comm.size(); ++step) {
      const std::int32_t peer = (comm.rank() + step) % comm.size();
      sends.push_back({peer, bytes});
      receives.push_back({peer, rooms[static_cast<std::size_t>(peer)]});
    }
    return exchange(comm, sends, receives);
  };
}

}  // namespace

TEST_CASE("a chain of messages takes two overheads, a latency, and the bytes for each hop") {
  // A hop of 100 bytes: 7 + 1000 + 100 + 7 = 1114 ns. The sender waits until its bytes have left: 7 + 100 ns.
  CHECK(finished(6, network_with(7ns), chain_of(100)) ==
        std::vector<nanoseconds>{107ns, 1221ns, 2335ns, 3449ns, 4563ns, 5570ns});
}

TEST_CASE("messages of eight ranks to one wait for its link, or for its processor") {
  // 7 + 1000 + 8 * 100 + 7: the link receives one message after the other.
  CHECK(finished(9, network_with(7ns), star_of(100)).front() == 1814ns);
  // 7 + 1000 + 3 + 8 * 7: the processor is slower than the link.
  CHECK(finished(9, network_with(7ns), star_of(3)).front() == 1066ns);
}

TEST_CASE("an all-to-all takes as long on every rank") {
  // Links: 2 * 7 + 3 * 100 + 1000 + 100.
  CHECK(finished(5, network_with(7ns), all_to_all_of(100)) == std::vector<nanoseconds>(5, 1414ns));
  // Short messages leave one overhead apart: 2 * 7 + 3 * 7 + 1000 + 3.
  CHECK(finished(5, network_with(7ns), all_to_all_of(3)) == std::vector<nanoseconds>(5, 1038ns));
  // Processors: 8 overheads of 700.
  CHECK(finished(5, network_with(700ns), all_to_all_of(3)) == std::vector<nanoseconds>(5, 5600ns));
}

TEST_CASE("an all_gather begins when the last rank arrives") {
  const auto gather = [](any_communicator& comm) -> result<void> {
    auto* const simulated = comm.target<simulated_communicator>();
    simulated->spend(comm.rank() * 1000ns);
    CHECK(simulated->now() == comm.rank() * 1000ns);
    const std::vector<std::byte> bytes(50);
    const auto all = comm.all_gather(bytes, {});
    if (!all) return all.error();
    return {};
  };
  // 3000 + 1000 + 2 * 7 + 3 * 50.
  CHECK(finished(4, network_with(7ns), gather) == std::vector<nanoseconds>(4, 4164ns));
  // 3000 + 6 overheads of 700.
  CHECK(finished(4, network_with(700ns), gather) == std::vector<nanoseconds>(4, 7200ns));
  CHECK(finished(1, network_with(7ns), gather) == std::vector<nanoseconds>{0ns});
}

TEST_CASE("the time of bytes on a link is rounded up and never overflows") {
  const network_model slow{.bytes_per_second = 3};
  CHECK(slow.transfer_time(0) == 0ns);
  CHECK(slow.transfer_time(1) == 333'333'334ns);
  CHECK(slow.transfer_time(3) == 1s);
  CHECK(slow.transfer_time(std::numeric_limits<std::int64_t>::max()) == nanoseconds::max());
  CHECK(slow.all_gather_time(2, std::numeric_limits<std::int64_t>::max()) <= nanoseconds::max());
  const network_model fast{.bytes_per_second = 25'000'000'000};
  CHECK(fast.transfer_time(1) == 1ns);
  CHECK(fast.transfer_time(25) == 1ns);
  CHECK(fast.transfer_time(50'000'000'025) == 2s + 1ns);
}

TEST_CASE("the CPU time of a rank counts on request") {
  const watchdog dog(60s);
  const auto work = [](any_communicator& comm) -> result<void> {
    if (comm.rank() != 1) return {};
    const auto used = [] {
      std::timespec now{};
      ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
      return std::chrono::seconds(now.tv_sec) + nanoseconds(now.tv_nsec);
    };
    const nanoseconds began = used();
    while (used() - began < 3ms) {
    }
    return {};
  };
  const auto counted = simulate_ranks(2, work, {.count_cpu_time = true}).value();
  CHECK(counted.ranks[1].finished >= 3ms);
  CHECK(counted.critical_path() == counted.ranks[1].finished);
  CHECK(simulate_ranks(2, work).value().critical_path() == 0ns);
}
