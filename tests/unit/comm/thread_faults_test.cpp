// SPDX-License-Identifier: Apache-2.0
// Tests failures between threads. Every rank soon gets an error that names the cause and the ranks, and no buffer is
// accessed afterwards.
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <watchdog.hpp>
import shardmesh.comm;

using namespace shardmesh;
using namespace std::chrono_literals;

namespace {

using bytes = std::vector<std::byte>;
using clock_type = std::chrono::steady_clock;

bool says(const error& e, const std::string& text) {
  UNSCOPED_INFO(to_string(e));
  return to_string(e).find(text) != std::string::npos;
}

call_options within(std::chrono::milliseconds time) {
  call_options options;
  options.within = time;
  return options;
}

// Sends `out` to a peer and receives `in` from it; empty messages are left out.
result<void> swap_with(any_communicator& comm, std::int32_t peer, bytes& out, bytes& in, const call_options& options) {
  const outgoing send{peer, out};
  const incoming receive{peer, in};
  auto started =
      comm.start_exchange(std::span(&send, out.empty() ? 0U : 1U), std::span(&receive, in.empty() ? 0U : 1U), options);
  if (!started) return started.error();
  return started->wait();
}

// The result of each rank's function.
struct outcomes {
  std::mutex lock;
  std::vector<std::optional<error>> errors;
  explicit outcomes(std::size_t ranks) : errors(ranks) {}
  result<void> keep(std::int32_t rank, result<void> r) {
    const std::scoped_lock guard(lock);
    if (!r) errors[static_cast<std::size_t>(rank)] = r.error();
    return r;
  }
};

}  // namespace

TEST_CASE("messages to oneself, to nobody, twice to one peer and empty ones are refused by name") {
  const thread_group group(3);
  thread_communicator comm = group.communicator(1);
  bytes data(8);
  const auto problem = [&](std::vector<outgoing> sends, std::vector<incoming> receives) {
    const auto started = comm.start_exchange(sends, receives, {});
    REQUIRE_FALSE(started.has_value());
    CHECK(started.error().code == errc::invalid_argument);
    return started.error();
  };
  CHECK(says(problem({{1, data}}, {}), "rank 1 sends to itself"));
  CHECK(says(problem({}, {{1, data}}), "rank 1 receives from itself"));
  CHECK(says(problem({{3, data}}, {}), "rank 1 sends to rank 3, but the group has 3 ranks"));
  CHECK(problem({}, {{-1, data}}).ranks == std::vector<std::int32_t>{-1});
  CHECK(says(problem({{0, data}, {2, data}, {0, data}}, {}), "rank 1 sends to rank 0 twice in one call"));
  CHECK(says(problem({}, {{2, data}, {2, data}}), "rank 1 receives from rank 2 twice in one call"));
  CHECK(says(problem({{0, {}}}, {}), "rank 1 sends to rank 0, but the message is empty"));
  CHECK(says(problem({}, {{0, {}}}), "rank 1 receives from rank 0, but the message is empty"));
  CHECK(group.status().has_value());  // nothing was started, and the group still works
}

TEST_CASE("sizes that differ on the two sides are an error on both, naming ranks and sizes") {
  const watchdog dog(30s);
  for (const bool sender_first : {true, false}) {
    outcomes got(2);
    const auto done = run_ranks(2, [&](any_communicator& comm) -> result<void> {
      bytes data(16), room(24), none;
      if ((comm.rank() == 0) != sender_first) std::this_thread::yield();
      return got.keep(comm.rank(),
                      comm.rank() == 0 ? swap_with(comm, 1, data, none, {}) : swap_with(comm, 0, none, room, {}));
    });
    REQUIRE_FALSE(done.has_value());
    for (const auto& e : got.errors) {
      REQUIRE(e.has_value());
      CHECK(e->code == errc::communication);
      CHECK(says(*e, "from rank 0 to rank 1"));
      CHECK(says(*e, "expected 24 bytes"));
      CHECK(says(*e, "found 16 bytes"));
      CHECK(e->ranks == std::vector<std::int32_t>{0, 1});
    }
  }
}

TEST_CASE("a deadline names the ranks that did not come and what they were doing, on every rank") {
  const watchdog dog(30s);
  outcomes got(3);
  const auto start = clock_type::now();
  const auto done = run_ranks(3, [&](any_communicator& comm) -> result<void> {
    bytes data(16), room(16);
    if (comm.rank() == 2) return got.keep(2, comm.all_gather({}, {}) ? result<void>{} : fail(errc::cancelled, "ended"));
    if (comm.rank() == 1) return got.keep(1, swap_with(comm, 0, data, room, {}));
    // Rank 0 waits for rank 2, which is in all_gather.
    return got.keep(0, swap_with(comm, 2, data, room, within(50ms)));
  });
  CHECK(clock_type::now() - start < 1050ms);
  REQUIRE_FALSE(done.has_value());
  CHECK(done.error().code == errc::deadline_exceeded);
  CHECK(done.error().ranks == std::vector<std::int32_t>{2});
  CHECK(says(done.error(), "rank 0 timed out after "));
  CHECK(says(done.error(),
             " waiting for messages from rank 2, and for rank 2 to receive its own in an exchange (tag 0)"));
  CHECK(says(done.error(), "rank 2 in all_gather for"));
  REQUIRE(got.errors[1].has_value());
  CHECK(got.errors[1] == got.errors[0]);  // the same text on a rank that waited without a deadline
  CHECK(got.errors[2].has_value());
}

TEST_CASE("all_gather names the ranks that did not come by its deadline") {
  const watchdog dog(30s);
  const thread_group group(3);
  const auto all = group.communicator(1).all_gather({}, within(20ms));
  REQUIRE_FALSE(all.has_value());
  CHECK(all.error().code == errc::deadline_exceeded);
  CHECK(all.error().ranks == std::vector<std::int32_t>{0, 2});
  CHECK(all.error().message.starts_with("rank 1 timed out after "));
  CHECK(all.error().message.ends_with(" waiting for messages from ranks 0, 2 in an all_gather (tag 0)"));
  CHECK(says(all.error(), "rank 0 has made no call"));
  // From then on, every call on every rank fails with this error.
  CHECK(group.communicator(0).all_gather({}, {}).error() == all.error());
  CHECK(group.communicator(2).start_exchange({}, {}, {}).error() == all.error());
}

TEST_CASE("a deadline that has passed already fails at once") {
  const watchdog dog(30s);
  for (const bool gather : {true, false}) {
    const thread_group group(2);
    call_options options;
    options.within = clock_type::time_point{};
    thread_communicator comm = group.communicator(0);
    const error e = gather ? comm.all_gather({}, options).error() : comm.start_exchange({}, {}, options).error();
    CHECK(e.code == errc::deadline_exceeded);
    CHECK(says(e, std::string("the deadline of rank 0 had passed before ") +
                      (gather ? "an all_gather" : "an exchange") + " (tag 0)"));
    CHECK(group.status().error().code == errc::deadline_exceeded);
  }
}

TEST_CASE("a stop request ends waits on every rank") {
  const watchdog dog(30s);
  for (const bool gather : {true, false}) {
    std::stop_source stop;
    outcomes got(2);
    std::atomic<int> waiting{0};
    const auto done = run_ranks(3, [&](any_communicator& comm) -> result<void> {
      if (comm.rank() == 2) {
        while (waiting < 2) std::this_thread::yield();
        stop.request_stop();
        return {};
      }
      call_options options;
      if (comm.rank() == 0) options.cancel = stop.get_token();
      ++waiting;
      bytes none, room(4);
      if (!gather) return got.keep(comm.rank(), swap_with(comm, 2, none, room, options));
      const auto all = comm.all_gather({}, options);
      return got.keep(comm.rank(), all ? result<void>{} : result<void>(all.error()));
    });
    REQUIRE_FALSE(done.has_value());
    REQUIRE(got.errors[0].has_value());
    REQUIRE(got.errors[1].has_value());
    // The others may see the stop request or the exit of rank 2 first; both reasons are right.
    CHECK((done.error().code == errc::cancelled || says(done.error(), "rank 2")));
    CHECK(got.errors[0] == got.errors[1]);
  }
}

TEST_CASE("abort gives every rank the same error, now and later") {
  const watchdog dog(30s);
  outcomes got(4);
  const error reason = fail(errc::no_space, "the disk of rank 3 is full").with_key("w").with_rank(3);
  const auto done = run_ranks(4, [&](any_communicator& comm) -> result<void> {
    if (comm.rank() == 3) {
      comm.abort(reason);
      comm.abort(fail(errc::cancelled, "too late"));
    }
    bytes data(70'000), room(70'000);
    return got.keep(comm.rank(), swap_with(comm, comm.rank() ^ 2, data, room, {}));
  });
  REQUIRE_FALSE(done.has_value());
  CHECK(done.error() == reason);
  CHECK(got.errors[1] == reason);
  CHECK(got.errors[3] == reason);
}

TEST_CASE("what a rank throws reaches the others, and the caller with its rank") {
  const watchdog dog(30s);
  for (const bool own : {true, false}) {
    outcomes got(3);
    const auto done = run_ranks(3, [&](any_communicator& comm) -> result<void> {
      if (comm.rank() == 1) {
        if (own) throw exception(fail(errc::missing_key, "row 3 is missing").with_key("b"));
        throw std::runtime_error("no luck");
      }
      const auto all = comm.all_gather({}, {});
      return got.keep(comm.rank(), all ? result<void>{} : result<void>(all.error()));
    });
    REQUIRE_FALSE(done.has_value());
    CHECK(says(done.error(), own ? "b: row 3 is missing (rank 1)" : "rank 1 threw: no luck"));
    CHECK(done.error().ranks == std::vector<std::int32_t>{1});
    for (const std::size_t r : {0U, 2U}) {
      REQUIRE(got.errors[r].has_value());
      CHECK(says(*got.errors[r], own ? "row 3 is missing" : "no luck"));
    }
  }
}

TEST_CASE("a gap that a rank reports is not blamed on it") {
  const watchdog dog(30s);
  const auto done = run_ranks(2, [](any_communicator& comm) -> result<void> {
    if (comm.rank() == 1) return fail(errc::gap, "cells are held by no rank").with_key("w");
    const auto all = comm.all_gather({}, {});
    return all ? result<void>{} : result<void>(all.error());
  });
  REQUIRE_FALSE(done.has_value());
  CHECK(to_string(done.error()) == "w: cells are held by no rank");
}

TEST_CASE("run_ranks returns the first error, not what it caused on other ranks") {
  const watchdog dog(30s);
  const auto done = run_ranks(4, [&](any_communicator& comm) -> result<void> {
    if (comm.rank() == 2) return fail(errc::bad_format, "this is the cause");
    const auto all = comm.all_gather({}, {});
    if (all) return {};
    return fail(errc::io, "rank " + std::to_string(comm.rank()) + " could not go on: " + all.error().message);
  });
  REQUIRE_FALSE(done.has_value());
  CHECK(done.error().code == errc::bad_format);
  CHECK(done.error().ranks == std::vector<std::int32_t>{2});
}

TEST_CASE("a rank that returns early ends the wait of those that count on it, without a deadline") {
  const watchdog dog(30s);
  for (const int kind : {0, 1, 2}) {
    outcomes got(2);
    const auto done = run_ranks(2, [&](any_communicator& comm) -> result<void> {
      if (comm.rank() == 1) return {};
      bytes data(16), room(16), none;
      if (kind == 0) return got.keep(0, swap_with(comm, 1, data, none, {}));
      if (kind == 1) return got.keep(0, swap_with(comm, 1, none, room, {}));
      const auto all = comm.all_gather({}, {});
      return got.keep(0, all ? result<void>{} : result<void>(all.error()));
    });
    REQUIRE_FALSE(done.has_value());
    CHECK(done.error().code == errc::communication);
    CHECK(done.error().ranks == std::vector<std::int32_t>{1});
    CHECK(says(done.error(), "rank 1, which has left"));
  }
}

TEST_CASE("a body that handles every error makes a run succeed") {
  const watchdog dog(30s);
  CHECK(run_ranks(2, [&](any_communicator& comm) -> result<void> {
          static_cast<void>(comm.all_gather({}, within(comm.rank() == 0 ? 10ms : 0ms)));
          return {};
        }).has_value());
}

TEST_CASE("a group of no ranks cannot run") {
  CHECK(run_ranks(0, [](any_communicator&) -> result<void> { return {}; }).error().code == errc::invalid_argument);
}

TEST_CASE("after wait no buffer is touched, whoever failed") {
  const watchdog dog(120s);
  // The buffers die as soon as wait returns; the sanitizers catch a late copy.
  for (int round = 0; round < 200; ++round) {
    INFO("round " << round);
    const auto done = run_ranks(4, [&](any_communicator& comm) -> result<void> {
      for (int n = 0; n < 6; ++n) {
        std::vector<std::unique_ptr<bytes>> memory;
        std::vector<outgoing> sends;
        std::vector<incoming> receives;
        for (std::int32_t peer = 0; peer < 4; ++peer) {
          if (peer == comm.rank()) continue;
          memory.push_back(std::make_unique<bytes>(80'000, static_cast<std::byte>(n)));
          sends.push_back({peer, *memory.back()});
          memory.push_back(std::make_unique<bytes>(80'000));
          receives.push_back({peer, *memory.back()});
        }
        if (n == 3 && comm.rank() == round % 4) return fail(errc::cancelled, "enough");
        auto started = comm.start_exchange(sends, receives, {});
        if (!started) return started.error();
        const auto waited = started->wait();
        if (!waited) return waited;
        for (const incoming& r : receives)
          if (r.bytes.front() != static_cast<std::byte>(n) || r.bytes.back() != static_cast<std::byte>(n))
            return fail(errc::checksum_mismatch, "wrong bytes");
      }
      return {};
    });
    REQUIRE_FALSE(done.has_value());
    // The error of the rank that stopped, and none about wrong bytes.
    CHECK(done.error().code == errc::cancelled);
    CHECK(done.error().message == "enough");
    CHECK(done.error().ranks == std::vector<std::int32_t>{round % 4});
  }
}

TEST_CASE("lending and exchanging with each other is an error on both sides") {
  const watchdog dog(30s);
  outcomes got(2);
  const auto done = run_ranks(2, [&](any_communicator& comm) -> result<void> {
    bytes room(16);
    const incoming receive{0, room};
    if (comm.rank() == 1) {
      auto started = comm.start_exchange({}, std::span(&receive, 1), {});
      if (!started) return got.keep(1, started.error());
      return got.keep(1, started->wait());
    }
    struct nothing final : lender {
      const_tensor_view piece(std::size_t) const override { return {}; }
    } const none;
    const lent lend{1, &none, 16};
    auto started = comm.start_lending(std::span(&lend, 1), {}, {});
    if (!started) return got.keep(0, started.error());
    return got.keep(0, started->wait());
  });
  REQUIRE_FALSE(done.has_value());
  for (const auto& e : got.errors) {
    REQUIRE(e.has_value());
    CHECK(says(*e, "one of ranks 0 and 1 lends memory"));
  }
}

TEST_CASE("a borrower that gives up does not keep the lender waiting") {
  const watchdog dog(30s);
  const auto done = run_ranks(2, [&](any_communicator& comm) -> result<void> {
    struct nothing final : lender {
      const_tensor_view piece(std::size_t) const override { return {}; }
    } const none;
    const lent lend{1, &none, 16};
    const borrowed borrow{0, 16};
    auto started = comm.rank() == 0 ? comm.start_lending(std::span(&lend, 1), {}, {})
                                    : comm.start_lending({}, std::span(&borrow, 1), {});
    if (!started) return started.error();
    return started->wait();  // rank 1 never reads the lent memory
  });
  REQUIRE_FALSE(done.has_value());
  CHECK(says(done.error(), "rank 1 stopped lending its memory"));
}

TEST_CASE("the trace of a group tells each rank's calls") {
  const watchdog dog(30s);
  const thread_group group(2);
  std::jthread other([&] {
    thread_communicator comm = group.communicator(1);
    static_cast<void>(comm.all_gather({}, {}));
  });
  REQUIRE(group.communicator(0).all_gather({}, {}).has_value());
  other.join();
  const std::string text = group.trace();
  CHECK(text.find("rank 0: idle for") != std::string::npos);
  CHECK(text.find("after all_gather") != std::string::npos);
  trace_ring ring;
  CHECK(ring.now() == "has made no call");
  for (std::uint32_t i = 0; i < 100; ++i) {
    const std::uint64_t number = ring.begin("exchange", i, 2, 4096);
    if (i != 99) ring.end(number);
  }
  CHECK(ring.count() == 100);
  CHECK(ring[99].tag == 99);
  CHECK(ring.now().find("in exchange (tag 99, 2 messages, 4.0 KiB) for") != std::string::npos);
  static_cast<void>(ring.begin("all_gather", 0, 0, 0, "save"));
  CHECK(ring.now().starts_with("in all_gather of save for"));
}

TEST_CASE("messages to a rank that there is not, or to one twice, are refused with the rank") {
  const watchdog dog(30s);
  const thread_group group(2);
  thread_communicator comm = group.communicator(0);
  const bytes data(4);
  const auto refusal = [&](const std::vector<outgoing>& sends) { return comm.start_exchange(sends, {}, {}).error(); };
  const error beyond = refusal({{2, data}}), twice = refusal({{1, data}, {1, data}});
  CHECK(beyond.code == errc::invalid_argument);
  CHECK(beyond.ranks == std::vector<std::int32_t>{2});
  CHECK(twice.code == errc::invalid_argument);
  CHECK(says(twice, "twice in one call"));
}

TEST_CASE("a call that was cancelled before it began says so") {
  const watchdog dog(30s);
  const thread_group group(2);
  std::stop_source stop;
  stop.request_stop();
  call_options options;
  options.cancel = stop.get_token();
  const auto done = group.communicator(0).all_gather({}, options);
  REQUIRE_FALSE(done.has_value());
  CHECK(done.error().code == errc::cancelled);
  CHECK(says(done.error(), "rank 0 was cancelled before an all_gather (tag 0)"));
}
