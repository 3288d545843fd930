// SPDX-License-Identifier: Apache-2.0
// Programs that cannot continue, functions that fail, and wrong options: the errors of simulate_ranks.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <watchdog.hpp>
import shardmesh.simulation;

using namespace shardmesh;
using namespace std::chrono_literals;

namespace {

using bytes = std::vector<std::byte>;

result<void> receive_from(any_communicator& comm, std::int32_t peer, std::uint32_t tag) {
  bytes room(8);
  const incoming one{peer, room};
  auto started = comm.start_exchange({}, {&one, 1}, call_options{.tag = tag}.named("training"));
  if (!started) return started.error();
  return started->wait();
}

error error_of(std::int32_t size, function_ref<result<void>(any_communicator&)> body,
               const simulation_options& options = {}) {
  const watchdog dog(120s);
  const auto done = simulate_ranks(size, body, options);
  REQUIRE_FALSE(done.has_value());
  return done.error();
}

}  // namespace

TEST_CASE("ranks that wait for each other fail at once, with the waits of all") {
  const error found = error_of(2, [](any_communicator& comm) { return receive_from(comm, 1 - comm.rank(), 3); });
  CHECK(found.code == errc::communication);
  CHECK(found.ranks == std::vector<std::int32_t>{0, 1});
  CHECK(
      found.message ==
      "no rank can continue, because 2 ranks wait for others and 0 ranks have returned: rank 0 waits for rank 1 in an "
      "exchange of training (tag 3); rank 1 waits for rank 0 in an exchange of training (tag 3)");
}

TEST_CASE("a rank that waits for a returned rank fails") {
  const error found = error_of(3, [](any_communicator& comm) -> result<void> {
    if (comm.rank() == 1) return {};
    const auto all = comm.all_gather({}, call_options{.tag = 7}.named("training"));
    return all ? result<void>{} : result<void>(all.error());
  });
  CHECK(found.code == errc::communication);
  CHECK(found.ranks == std::vector<std::int32_t>{0, 2});
  CHECK(found.message ==
        "no rank can continue, because 2 ranks wait for others and 1 rank has returned: rank 0 waits for rank 1 in an "
        "all_gather of training (tag 7); rank 2 waits for rank 1 in an all_gather of training (tag 7)");
}

TEST_CASE("a send that no rank receives is a deadlock, and names the receiver") {
  const error found = error_of(2, [](any_communicator& comm) -> result<void> {
    if (comm.rank() == 0) return {};
    const bytes message(8);
    const outgoing one{0, message};
    auto started = comm.start_exchange({&one, 1}, {}, {.tag = 1});
    return started ? started->wait() : result<void>(started.error());
  });
  CHECK(found.message ==
        "no rank can continue, because 1 rank waits for others and 1 rank has returned: rank 1 waits "
        "for rank 0 to receive its messages in an exchange (tag 1)");
}

TEST_CASE("a deadlock of many ranks names sixteen and counts the others") {
  const error found =
      error_of(20, [](any_communicator& comm) { return receive_from(comm, (comm.rank() + 1) % comm.size(), 0); });
  std::vector<std::int32_t> first(16);
  std::iota(first.begin(), first.end(), 0);
  CHECK(found.ranks == first);
  CHECK(found.message.ends_with("; rank 15 waits for rank 16 in an exchange of training (tag 0); 4 more ranks"));
}

TEST_CASE("a rank that polls for a returned rank gets an error") {
  const error found = error_of(2, [](any_communicator& comm) -> result<void> {
    if (comm.rank() == 1) return {};
    bytes room(8);
    const incoming one{1, room};
    auto started = comm.start_exchange({}, {&one, 1}, {.tag = 2});
    if (!started) return started.error();
    while (!started->done()) {
    }
    return started->wait();
  });
  CHECK(found.code == errc::communication);
  CHECK(found.message == "rank 0 waits for rank 1, which has returned (tag 2)");
  CHECK(found.ranks == std::vector<std::int32_t>{1});
}

TEST_CASE("the error or exception of one rank ends the waits of all") {
  const auto failing = [](any_communicator& comm) -> result<void> {
    if (comm.rank() == 2) return fail(errc::no_space, "the disk is full");
    return receive_from(comm, 2, 0);
  };
  const error failed = error_of(4, failing);
  CHECK(failed.code == errc::no_space);
  CHECK(failed.message == "the disk is full");
  CHECK(failed.ranks == std::vector<std::int32_t>{2});

  const auto throwing = [](any_communicator& comm) -> result<void> {
    if (comm.rank() == 1) throw std::runtime_error("out of luck");
    return receive_from(comm, 1, 0);
  };
  const error thrown = error_of(2, throwing);
  CHECK(thrown.code == errc::communication);
  CHECK(thrown.message == "the function of rank 1 threw: out of luck");
}

TEST_CASE("a thread that is not the rank's own gets an error, and may abort") {
  const error found = error_of(2, [](any_communicator& comm) -> result<void> {
    if (comm.rank() == 1) return receive_from(comm, 0, 0);
    std::optional<error> refused;
    std::thread([&] {
      const auto all = comm.all_gather({}, call_options{}.named("training"));
      if (!all) refused = all.error();
      comm.abort(fail(errc::cancelled, "another thread gave up"));
    }).join();
    REQUIRE(refused.has_value());
    CHECK(refused->code == errc::unsupported);
    CHECK(refused->message == "a thread that is not the thread of simulated rank 0 calls an all_gather of training");
    return receive_from(comm, 1, 0);
  });
  CHECK(found.code == errc::cancelled);
  CHECK(found.message == "another thread gave up");
  CHECK(found.ranks == std::vector<std::int32_t>{0});
}

TEST_CASE("wrong options are refused by name") {
  const auto nothing = [](any_communicator&) -> result<void> { return {}; };
  CHECK(error_of(0, nothing).message == "a simulation needs at least one rank");
  CHECK(error_of(2, nothing, {.network = {.latency = -1ns}}).message == "network_model::latency is out of range");
  CHECK(error_of(2, nothing, {.network = {.overhead = 2h}}).message == "network_model::overhead is out of range");
  CHECK(error_of(2, nothing, {.network = {.bytes_per_second = 0}}).found == "0");
  CHECK(error_of(2, nothing, {.stack_bytes = 1000}).message == "simulation_options::stack_bytes is out of range");
}

#ifdef __linux__
TEST_CASE("more ranks than the system permits threads are refused with the limit") {
  const error found = error_of(2'000'000'000, [](any_communicator&) -> result<void> { return {}; });
  CHECK(found.code == errc::unsupported);
  CHECK(found.message.starts_with("the system permits too few threads for 2000000000 simulated ranks ("));
  CHECK(found.hint.starts_with("raise "));
}
#endif
