// SPDX-License-Identifier: Apache-2.0
// Tests that messages over MPI arrive complete, in order, and in place: read from the sender's memory or sent through
// staging memory, and with many in flight. Requirements of any transport are in tests/distributed/conformance_test.cpp.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <random_seed.hpp>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "world.hpp"

import shardmesh.mpi;

using namespace shardmesh;

namespace {

const bool is_long = random_seed::runs_are_long();

struct mode {
  const char* name;
  mpi_options options;
};
const std::vector<mode> modes = {
    {"memory of peers is read", {}},
    {"staged in chunks of 128 KiB", {.read_peer_memory = false}},
    {"staged in chunks of 1000 bytes", {.read_peer_memory = false, .chunk_bytes = 1000}},
    {"staged in chunks of 1 byte up to small sizes", {.read_peer_memory = false, .chunk_bytes = 7}},
};

mpi_communicator open(const mpi_options& options = {}) {
  return mpi_communicator::from_handle(world_handle(), options).value();
}

call_options within(double seconds, std::uint32_t tag = 0) {
  return {.within = in_seconds(seconds), .tag = tag};
}

// One exchange of a random schedule (pairs, sizes, tag) that is the same on every rank.
struct planned_message {
  int from, to;
  std::uint32_t number;
  std::size_t size;
};
struct planned_exchange {
  std::uint32_t tag;
  std::vector<planned_message> messages;
};

std::vector<planned_exchange> random_schedule(std::mt19937& random, int ranks, std::size_t largest) {
  const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  std::vector<planned_exchange> schedule(1 + below(6));
  std::uint32_t number = 0;
  for (planned_exchange& e : schedule) {
    e.tag = below(2) == 0 ? 7 : static_cast<std::uint32_t>(0xfffffff0U + below(3));
    const std::size_t density = 1 + below(4);
    for (int from = 0; from < ranks; ++from)
      for (int to = 0; to < ranks; ++to) {
        ++number;
        if (from == to || below(4) >= density) continue;
        const std::size_t sizes[] = {1, 1 + below(64), 3910 + below(30), 1 + below(5000), 1 + below(largest)};
        e.messages.push_back({from, to, number, std::min(sizes[below(5)], largest)});
      }
  }
  return schedule;
}

// Memory for a receive between two borders that must not change.
class bordered {
 public:
  explicit bordered(std::size_t size) : all_(size + 2 * border, std::byte{0xa5}) {}
  std::span<std::byte> inside() { return std::span(all_).subspan(border, all_.size() - 2 * border); }
  bool holds(const std::vector<std::byte>& expected) const {
    const auto is_border = [](std::byte b) { return b == std::byte{0xa5}; };
    return std::all_of(all_.begin(), all_.begin() + border, is_border) &&
           std::all_of(all_.end() - border, all_.end(), is_border) &&
           std::equal(expected.begin(), expected.end(), all_.begin() + border, all_.end() - border);
  }

 private:
  static constexpr std::ptrdiff_t border = 64;
  std::vector<std::byte> all_;
};

// One exchange of this rank and its memory.
struct running_exchange {
  std::vector<std::vector<std::byte>> sent;
  std::vector<std::unique_ptr<bordered>> received;
  std::vector<planned_message> expected;
  pending work;
};

running_exchange start(mpi_communicator& comm, const planned_exchange& plan) {
  running_exchange e;
  std::vector<outgoing> sends;
  std::vector<incoming> receives;
  for (const planned_message& m : plan.messages) {
    if (m.from == comm.rank()) {
      e.sent.push_back(message_bytes(m.from, m.to, m.number, m.size));
      sends.push_back({m.to, e.sent.back()});
    }
    if (m.to == comm.rank()) {
      e.received.push_back(std::make_unique<bordered>(m.size));
      receives.push_back({m.from, e.received.back()->inside()});
      e.expected.push_back(m);
    }
  }
  e.work = comm.start_exchange(sends, receives, within(60, plan.tag)).value();
  return e;
}

int wrong_messages(const running_exchange& e) {
  int wrong = 0;
  for (std::size_t i = 0; i < e.expected.size(); ++i) {
    const planned_message& m = e.expected[i];
    wrong += !e.received[i]->holds(message_bytes(m.from, m.to, m.number, m.size));
  }
  return wrong;
}

}  // namespace

TEST_CASE("random exchanges in flight together deliver every byte of every message in call order") {
  const unsigned seed = 20260101;
  for (const mode& m : modes) {
    mpi_communicator comm = open(m.options);
    std::mt19937 random(seed);
    const std::size_t largest = m.options.chunk_bytes < 100 ? 5000 : 300'000;
    INFO(m.name << ", seed " << seed << ", " << comm.readable_peers() << " readable peers");
    if (!m.options.read_peer_memory) REQUIRE(comm.readable_peers() == 0);
    for (int round = 0; round < (is_long ? 300 : 30); ++round) {
      const auto schedule = random_schedule(random, comm.size(), largest);
      std::vector<running_exchange> running;
      for (const planned_exchange& e : schedule) running.push_back(start(comm, e));
      // Each rank waits in a different order.
      std::mt19937 mine(static_cast<unsigned>(round * 100 + comm.rank()));
      std::vector<std::size_t> order(running.size());
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::shuffle(order.begin(), order.end(), mine);
      for (const std::size_t i : order) {
        if (mine() % 3 == 0)
          while (!running[i].work.done()) std::this_thread::yield();
        const auto done = running[i].work.wait();
        INFO("round " << round << (done ? "" : to_string(done.error())));
        REQUIRE(done);
        REQUIRE(wrong_messages(running[i]) == 0);
      }
    }
  }
}

TEST_CASE("a message much larger than the staging memory arrives whole") {
  for (const mode& m : modes) {
    if (m.options.chunk_bytes < 1000) continue;
    mpi_communicator comm = open(m.options);
    const std::size_t size = m.options.chunk_bytes < 10'000 ? (std::size_t{1} << 20) + 1 : (std::size_t{40} << 20) + 3;
    planned_exchange ring{.tag = 3, .messages = {}};
    for (int rank = 0; rank < comm.size() && comm.size() > 1; ++rank)
      ring.messages.push_back({rank, (rank + 1) % comm.size(), static_cast<std::uint32_t>(rank), size});
    running_exchange e = start(comm, ring);
    REQUIRE(e.work.wait());
    CHECK(wrong_messages(e) == 0);
  }
}

TEST_CASE("more exchanges than there is staging memory for are all delivered") {
  mpi_communicator comm = open({.read_peer_memory = false, .chunk_bytes = 4096});
  if (comm.size() == 1) return;
  std::vector<running_exchange> running;
  for (std::uint32_t i = 0; i < 60; ++i) {
    planned_exchange all{.tag = i, .messages = {}};
    for (int from = 0; from < comm.size(); ++from)
      for (int to = 0; to < comm.size(); ++to)
        if (from != to) all.messages.push_back({from, to, i, 10'000 + i});
    running.push_back(start(comm, all));
  }
  // Even ranks go from first to last, odd ranks from last to first.
  if (comm.rank() % 2 == 1) std::reverse(running.begin(), running.end());
  for (running_exchange& e : running) {
    REQUIRE(e.work.wait());
    CHECK(wrong_messages(e) == 0);
  }
}

TEST_CASE("more staged messages than can be sent unasked arrive whole, however late their receives are") {
  mpi_communicator comm = open({.read_peer_memory = false, .chunk_bytes = 4096});
  if (comm.size() == 1) return;
  const int to = (comm.rank() + 1) % comm.size(), from = (comm.rank() + comm.size() - 1) % comm.size();
  constexpr std::uint32_t count = 40;
  const auto size = [](std::uint32_t i) { return 4000 + std::size_t{1000} * i; };
  std::vector<std::vector<std::byte>> sent;
  std::vector<std::unique_ptr<bordered>> received;
  std::vector<pending> sends, receives;
  for (std::uint32_t i = 0; i < count; ++i) sent.push_back(message_bytes(comm.rank(), to, i, size(i)));
  for (std::uint32_t i = 0; i < count; ++i) {
    const outgoing one{to, sent[i]};
    sends.push_back(comm.start_exchange(std::span(&one, 1), {}, within(60, i)).value());
  }
  REQUIRE(comm.all_gather({}, within(60)));  // every message has been announced
  for (std::uint32_t i = count; i-- > 0;) {
    received.push_back(std::make_unique<bordered>(size(i)));
    const incoming one{from, received.back()->inside()};
    receives.push_back(comm.start_exchange({}, std::span(&one, 1), within(60, i)).value());
    REQUIRE(receives.back().wait());
    CHECK(received.back()->holds(message_bytes(from, comm.rank(), i, size(i))));
  }
  for (pending& one : sends) REQUIRE(one.wait());
}

TEST_CASE("waits of one rank in several threads do not disturb each other") {
  for (const mode& m : modes) {
    mpi_communicator comm = open(m.options);
    std::vector<std::thread> threads;
    std::vector<int> wrong(4, -1);
    for (std::uint32_t t = 0; t < wrong.size(); ++t)
      threads.emplace_back([&, t] {
        std::mt19937 random(t);
        int count = 0;
        for (int round = 0; round < 10; ++round) {
          planned_exchange all{.tag = t, .messages = {}};
          for (int from = 0; from < comm.size(); ++from)
            for (int to = 0; to < comm.size(); ++to)
              if (from != to) all.messages.push_back({from, to, t, 1 + random() % 9000});
          running_exchange e = start(comm, all);
          if (!e.work.wait()) ++count;
          count += wrong_messages(e);
        }
        wrong[t] = count;
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == std::vector<int>(4, 0));
  }
}

TEST_CASE("a message of more than 2 GiB arrives whole", "[.][huge]") {
  for (const mode& m : modes) {
    if (m.options.chunk_bytes < 10'000) continue;
    mpi_communicator comm = open(m.options);
    if (comm.size() < 2 || comm.rank() > 1) continue;
    std::vector<std::byte> bytes((std::size_t{2} << 30) + 12'345, std::byte{1});
    if (comm.rank() == 0) {
      for (std::size_t i = 0; i < bytes.size(); i += 4093) bytes[i] = message_byte(0, 1, 0, i);
      bytes.back() = std::byte{99};
    }
    const std::vector<outgoing> sends = {{1, bytes}};
    const std::vector<incoming> receives = {{0, bytes}};
    auto work =
        comm.rank() == 0 ? comm.start_exchange(sends, {}, within(120)) : comm.start_exchange({}, receives, within(120));
    REQUIRE(work);
    REQUIRE(work->wait());
    std::size_t wrong = bytes.back() != std::byte{99};
    for (std::size_t i = 0; i + 1 < bytes.size(); ++i)
      wrong += bytes[i] != (i % 4093 == 0 ? message_byte(0, 1, 0, i) : std::byte{1});
    CHECK(wrong == 0);
  }
}
