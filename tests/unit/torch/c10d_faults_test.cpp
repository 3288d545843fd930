// SPDX-License-Identifier: Apache-2.0
// Tests exceptions of a c10d backend: each becomes every rank's error, which names the peer, the call, and the tag. No
// work stays in flight, no rank hangs, and no two live communicators share a tag. Ranks are threads over a backend of
// the test.
#include <pthread.h>
#include <loopback_group.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <dice.hpp>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <random_seed.hpp>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <watchdog.hpp>

import shardmesh.comm;
import shardmesh.torch;

using namespace shardmesh;
using namespace std::chrono_literals;

namespace {

// The number of threads that can still be started; -1 means any number.
std::atomic<int> threads_left = -1;

}  // namespace

// The library's threads start here.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*work)(void*), void* with) {
  static const auto real = reinterpret_cast<decltype(&::pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
  if (threads_left == 0) return EAGAIN;
  if (threads_left > 0) --threads_left;
  return real(thread, attributes, work, with);
}

namespace {

using bytes = std::vector<std::byte>;

bytes message(std::int32_t from, std::size_t size) {
  bytes made(size);
  for (std::size_t i = 0; i < size; ++i) made[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(from));
  return made;
}

// Each rank's first error, or none where all calls succeeded.
using outcomes = std::vector<std::optional<error>>;

call_options in_time(std::uint32_t tag) {
  call_options made;
  made.within = 3s;
  made.name = "save";
  made.tag = tag;
  return made;
}

result<void> all_calls(c10d_communicator& comm) {
  const std::int32_t next = (comm.rank() + 1) % comm.size(), before = (comm.rank() + comm.size() - 1) % comm.size();
  for (const std::size_t size : {std::size_t{100}, std::size_t{5000}}) {  // in a record, and as a separate payload
    const bytes mine = message(comm.rank(), size);
    bytes room(size);
    const outgoing send{next, mine};
    const incoming receive{before, room};
    auto started = comm.start_exchange({&send, 1}, {&receive, 1}, in_time(5));
    if (!started) return started.error();
    if (auto done = started->wait(); !done) return done;
    if (room != message(before, size)) return fail(errc::bad_format, "the bytes are not those that were sent");
    auto all = comm.all_gather(mine, in_time(6));
    if (!all) return all.error();
    for (std::int32_t rank = 0; rank < comm.size(); ++rank)
      if ((*all)[static_cast<std::size_t>(rank)] != message(rank, size))
        return fail(errc::bad_format, "the gathered bytes are not those that were given");
  }
  return {};
}

outcomes run(loopback_group& group, std::int32_t size) {
  std::vector<std::optional<c10d_communicator>> comms;
  for (std::int32_t rank = 0; rank < size; ++rank) comms.emplace_back(c10d_communicator::of(group.of(rank)).value());
  outcomes found(static_cast<std::size_t>(size));
  {
    std::vector<std::jthread> threads;
    for (std::int32_t rank = 0; rank < size; ++rank)
      threads.emplace_back([&, at = static_cast<std::size_t>(rank)] {
        if (auto done = all_calls(*comms[at]); !done) found[at] = done.error();
        comms[at].reset();
      });
  }
  return found;
}

std::string text_of(const outcomes& found) {
  std::string text;
  for (const auto& one : found) text += (one ? to_string(*one) : std::string("no error")) + "\n";
  return text;
}

constexpr loopback_call all_kinds[] = {loopback_call::send,        loopback_call::send_wait,
                                       loopback_call::receive,     loopback_call::receive_wait,
                                       loopback_call::receive_any, loopback_call::receive_any_wait};

// The possible messages of rank 1's error, with the peer and the call. Answers and goodbyes belong to no call.
std::set<std::string> sayings(loopback_call what, std::int32_t size) {
  const std::string begin = "the process group failed on rank 1, which ";
  if (what == loopback_call::receive_any || what == loopback_call::receive_any_wait)
    return {begin + "receives from any rank"};
  std::set<std::string> all;
  const bool sends = what == loopback_call::send || what == loopback_call::send_wait;
  for (std::int32_t peer = 0; peer < size; ++peer)
    for (const char* call : {"", " in an exchange of save (tag 5)", " in an all_gather of save (tag 0)"})
      all.insert(begin + (sends ? "sends to rank " : "receives from rank ") + std::to_string(peer) + call);
  return all;
}

}  // namespace

TEST_CASE("what a backend of c10d throws is the error of all ranks, which names peer, call and tag") {
  const watchdog dog{300s};
  for (const std::int32_t size : {2, 3})
    for (const loopback_call what : all_kinds) {
      loopback_group sound(size, "sound " + std::to_string(size));
      REQUIRE(text_of(run(sound, size)) == text_of(outcomes(static_cast<std::size_t>(size))));
      REQUIRE(sound.is_let_go());
      // The last sends are the goodbyes. A peer that does not get one keeps listening, because the connection is not
      // broken here.
      const int calls = sound.world().calls[{what, 1}] - (what == loopback_call::send ? size - 1 : 0);
      CHECK(calls > 0);
      int failed = 0;
      for (int number = 1; number <= calls; ++number)
        for (const bool no_memory : {false, true}) {
          INFO("ranks " << size << ", kind " << static_cast<int>(what) << ", call " << number << " of " << calls);
          loopback_group group(size, "failing " + std::to_string(size));
          group.world().on_call = [&](loopback_call kind, int rank, int at, int) {
            if (kind != what || rank != 1 || at != number) return;
            if (no_memory) throw std::bad_alloc();
            TORCH_CHECK(false, "injected failure");
          };
          const outcomes found = run(group, size);
          CHECK(group.is_let_go());
          std::set<std::string> different;
          for (const auto& one : found) {
            if (!one) continue;  // had finished before
            different.insert(to_string(*one));
            CHECK(one->code == (no_memory ? errc::no_memory : errc::communication));
            CHECK(one->found == (no_memory ? std::bad_alloc().what() : "injected failure"));
            CHECK(sayings(what, size).contains(one->message));
          }
          INFO(text_of(found));
          CHECK(different.size() <= 1);
          failed += different.empty() ? 0 : 1;
        }
      CHECK(failed > 0);
    }
}

TEST_CASE("a communicator of c10d for which no thread can be started is an error, and its peer does not wait for it") {
  const watchdog dog{60s};
  for (const int threads : {0, 1, 2}) {
    loopback_group group(2, "few threads");
    auto one = c10d_communicator::of(group.of(1));
    REQUIRE(one);
    threads_left = threads;
    const auto zero = c10d_communicator::of(group.of(0));
    threads_left = -1;
    REQUIRE_FALSE(zero);
    CHECK(to_string(zero.error()) ==
          "cannot start a thread for the process group: found Resource temporarily unavailable");
    const auto waited = one->all_gather({}, {});
    REQUIRE_FALSE(waited);
    CHECK(to_string(waited.error()) == "rank 1 waits for rank 0, which has destroyed the communicator (rank 0)");
    one = fail(errc::cancelled, "let go");
    CHECK(group.is_let_go());
  }
}

TEST_CASE("no tag of c10d belongs to two communicators that live, however many come and go") {
  const watchdog dog{120s};
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  dice draw(seed);
  loopback_group group(2, "tags");
  std::mutex lock;
  int current = 0;
  std::map<int, std::set<int>> slots;  // the tag ranges of each communicator
  group.world().on_call = [&](loopback_call what, int, int, int tag) {
    const std::lock_guard locked(lock);
    if (what == loopback_call::send) slots[current].insert(tag >> 20);
  };
  struct pair {
    int id;
    c10d_communicator zero, one;
  };
  std::vector<pair> live;
  std::optional<pair> oldest;
  int refused = 0;
  constexpr int count = 1100;  // more than the number of tag ranges
  for (int id = 1; id <= count; ++id) {
    current = id;
    auto zero = c10d_communicator::of(group.of(0)), one = c10d_communicator::of(group.of(1));
    REQUIRE(zero.has_value() == one.has_value());
    if (!zero) {
      ++refused;
      CHECK(to_string(zero.error()) ==
            "the process group tags has made 1024 communicators since one that still exists; destroy communicators of "
            "the group that are no longer needed, or make another group");
      CHECK(to_string(one.error()) == to_string(zero.error()));
      oldest.reset();
      continue;
    }
    const bytes sent = message(id, draw.one_in(2) ? 100 : 5000);
    bytes room(sent.size());
    const outgoing to_one{1, sent};
    const incoming from_zero{0, room};
    auto receiving = one->start_exchange({}, {&from_zero, 1}, {}).value();
    auto sending = zero->start_exchange({&to_one, 1}, {}, {}).value();
    REQUIRE(sending.wait());
    REQUIRE(receiving.wait());
    REQUIRE(std::equal(room.begin(), room.end(), sent.begin(), sent.end()));
    REQUIRE(slots[id].size() == 1);
    for (const pair& other : live) REQUIRE(slots[id] != slots[other.id]);
    if (oldest) REQUIRE(slots[id] != slots[oldest->id]);
    if (!oldest && refused == 0)
      oldest.emplace(id, *std::move(zero), *std::move(one));
    else
      live.emplace_back(id, *std::move(zero), *std::move(one));
    while (live.size() > 5 || (!live.empty() && draw.one_in(3))) {
      const auto gone = live.begin() + static_cast<std::ptrdiff_t>(draw.one_of(live.size()));
      current = gone->id;
      live.erase(gone);
    }
  }
  CHECK(refused > 0);
  live.clear();
  oldest.reset();
  CHECK(group.is_let_go());
}
