// SPDX-License-Identifier: Apache-2.0
// Tests edge cases of shared-memory messages: lent memory that is taken back, full rings, answers, joining, and errors.
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <watchdog.hpp>

import shardmesh.shared_memory;

using namespace shardmesh;
using namespace std::chrono_literals;

namespace {

using bytes = std::vector<std::byte>;
using seconds = std::chrono::duration<double>;

// Both ranks of a group, in this thread: a rank moves bytes only during its calls.
struct both {
  std::optional<shared_memory_communicator> zero, one;
};

both join_both(const shared_memory_options& options = {}) {
  const auto group = shared_memory_group::make(2, options).value();
  both made;
  std::jthread other([&] { made.one = shared_memory_communicator::join(group.token(), 1, {.within = 20s}).value(); });
  made.zero = shared_memory_communicator::join(group.token(), 0, {.within = 20s}).value();
  other.join();
  return made;
}

pending send(shared_memory_communicator& from, std::int32_t to, const bytes& what, const call_options& options = {}) {
  const outgoing message{to, what};
  return from.start_exchange(std::span(&message, 1), {}, options).value();
}

pending receive(shared_memory_communicator& to, std::int32_t from, bytes& room, const call_options& options = {}) {
  const incoming message{from, room};
  return to.start_exchange({}, std::span(&message, 1), options).value();
}

double thread_seconds() {
  ::timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

constexpr std::size_t head_bytes = 32, ring_bytes = 4096;  // of a message, and of the smallest ring

}  // namespace

TEST_CASE("memory that was lent and used again is no message, also where a new communicator has the old one's place") {
  const watchdog dog{60s};
  both ranks = join_both();
  const bytes sent(64 << 10, std::byte{'A'});
  bytes memory = sent, room(sent.size());
  pending receiving = receive(*ranks.one, 0, room);
  {
    pending sending = send(*ranks.zero, 1, memory, {.within = 20ms});
    REQUIRE(sending.wait().error().code == errc::deadline_exceeded);
  }
  ranks.zero.reset();
  std::fill(memory.begin(), memory.end(), std::byte{'B'});
  // One of these gets the address of the engine that was just destroyed.
  std::vector<shared_memory_group> groups;
  std::vector<shared_memory_communicator> others;
  for (int i = 0; i < 32; ++i) {
    groups.push_back(shared_memory_group::make(1).value());
    others.push_back(shared_memory_communicator::join(groups.back().token(), 0).value());
  }
  const auto received = receiving.wait();
  REQUIRE_FALSE(received.has_value());
  CHECK(received.error().code == errc::deadline_exceeded);
}

TEST_CASE("a receiver that leaves at once has told that it has the message, however full its ring is") {
  const watchdog dog{60s};
  both ranks = join_both({.buffer_bytes = ring_bytes});
  const bytes filling(ring_bytes - head_bytes, std::byte{1}), large(64 << 10, std::byte{2});
  bytes filled(filling.size()), room(large.size());
  pending sending = send(*ranks.zero, 1, large);
  REQUIRE(send(*ranks.one, 0, filling).wait());  // rank 0 makes no call that reads it: the ring is full
  REQUIRE(receive(*ranks.one, 0, room).wait());
  CHECK(room == large);
  ranks.one.reset();
  const auto sent = sending.wait();
  INFO((sent ? "no error" : to_string(sent.error())));
  CHECK(sent.has_value());
  CHECK(receive(*ranks.zero, 1, filled).wait());
  CHECK(filled == filling);
}

TEST_CASE("more large messages than may be lent at a time arrive, whatever the order in which they are wanted") {
  const watchdog dog{60s};
  both ranks = join_both({.buffer_bytes = 128 << 10});
  constexpr std::size_t count = 100, size = 40'000;
  std::vector<bytes> sent, rooms(count, bytes(size));
  std::vector<pending> sending, receiving;
  for (std::size_t i = 0; i < count; ++i) sent.emplace_back(size, static_cast<std::byte>(i));
  for (std::size_t i = 0; i < count; ++i)
    sending.push_back(send(*ranks.zero, 1, sent[i], {.tag = static_cast<std::uint32_t>(i)}));
  std::jthread other([&] {
    for (pending& one : sending) CHECK(one.wait());
  });
  for (std::size_t i = count; i-- > 0;)
    receiving.push_back(receive(*ranks.one, 0, rooms[i], {.tag = static_cast<std::uint32_t>(i)}));
  for (pending& one : receiving) CHECK(one.wait());
  other.join();
  CHECK(rooms == sent);
}

TEST_CASE("a rank sleeps while its ring has less room than the head of a message") {
  const watchdog dog{60s};
  for (const std::size_t left : {1, 16, 31}) {
    both ranks = join_both({.buffer_bytes = ring_bytes});
    const bytes first(ring_bytes - head_bytes - left, std::byte{1}), second(100, std::byte{2});
    bytes one(first.size()), two(second.size());
    REQUIRE(send(*ranks.zero, 1, first).wait());
    double used = 0;
    std::jthread sender([&] {
      const double before = thread_seconds();
      const auto done = send(*ranks.zero, 1, second, {.within = 20s}).wait();
      CHECK(done.has_value());
      used = thread_seconds() - before;
    });
    std::this_thread::sleep_for(600ms);
    CHECK(receive(*ranks.one, 0, one).wait());
    CHECK(receive(*ranks.one, 0, two).wait());
    sender.join();
    CHECK(one == first);
    CHECK(two == second);
    INFO("room for " << left << " bytes");
    CHECK(used < 0.2);
  }
}

TEST_CASE("joining ends when it is cancelled, and when the program says that it does not go on") {
  const watchdog dog{60s};
  const auto joined_for = [](const call_options& call, std::function<bool()> goes_on, error& problem) {
    const auto group = shared_memory_group::make(2).value();
    const auto began = std::chrono::steady_clock::now();
    problem = shared_memory_communicator::join(group.token(), 0, call, std::move(goes_on)).error();
    return seconds(std::chrono::steady_clock::now() - began).count();
  };
  error problem;
  std::stop_source stop;
  std::jthread later([&] {
    std::this_thread::sleep_for(100ms);
    stop.request_stop();
  });
  CHECK(joined_for({.within = 20s, .cancel = stop.get_token()}, {}, problem) < 5);
  CHECK(to_string(problem) == "rank 0 was cancelled in joining a group of processes (tag 0) (rank 0)");
  int asked = 0;
  CHECK(joined_for({.within = 20s}, [&] { return ++asked < 3; }, problem) < 5);
  CHECK(to_string(problem) == "rank 0 was cancelled in joining a group of processes (tag 0) (rank 0)");
  CHECK(asked == 3);
}

TEST_CASE("what a program throws while a rank joins or waits leaves the call, and the others get an error") {
  const watchdog dog{60s};
  const auto group = shared_memory_group::make(2).value();
  const auto joins = [&] {
    return shared_memory_communicator::join(group.token(), 0, {.within = 20s},
                                            []() -> bool { throw std::runtime_error("stop"); });
  };
  CHECK_THROWS_AS(joins(), std::runtime_error);
  CHECK(shared_memory_communicator::join(group.token(), 1, {.within = 20s}).error().code == errc::cancelled);

  const auto again = shared_memory_group::make(2).value();
  std::atomic<bool> throws = false;
  std::optional<shared_memory_communicator> zero, one;
  std::jthread other([&] { one = shared_memory_communicator::join(again.token(), 1, {.within = 20s}).value(); });
  zero = shared_memory_communicator::join(again.token(), 0, {.within = 20s}, [&]() -> bool {
           if (throws) throw std::runtime_error("stop");
           return true;
         }).value();
  other.join();
  throws = true;
  CHECK_THROWS_AS(zero->all_gather(bytes(10), {.within = 20s}), std::runtime_error);
  // Otherwise rank 1's part would go into memory that rank 0's all_gather has released.
  CHECK(one->all_gather(bytes(1000), {.within = 20s}).error().code == errc::cancelled);
  CHECK(zero->status().error().code == errc::cancelled);
}

TEST_CASE("a segment cannot be executed, and is joined whatever seals the system adds") {
  const auto group = shared_memory_group::make(1).value();
  int process = 0, file = 0;
  const std::string& token = group.token();
  const char* const end = token.data() + token.size();
  const auto first = std::from_chars(token.data(), end, process);
  std::from_chars(first.ptr + 1, end, file);
  const int seals = ::fcntl(file, F_GET_SEALS);
  REQUIRE(seals >= 0);
  constexpr int no_exec = 0x0020;  // F_SEAL_EXEC, which older headers lack
  const int plain = ::memfd_create("plain", MFD_ALLOW_SEALING | 0x0008U);
  if (plain < 0) SKIP("this kernel has no MFD_NOEXEC_SEAL");
  CHECK((seals & no_exec) != 0);
  CHECK(shared_memory_communicator::join(token, 0).has_value());
}
