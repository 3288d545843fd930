// SPDX-License-Identifier: Apache-2.0
// Tests shared-memory ranks as threads of one process, which sanitizers can see. tests/shared_memory tests them as
// processes.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <watchdog.hpp>

import shardmesh.conformance;
import shardmesh.shared_memory;

using namespace shardmesh;
using namespace std::chrono_literals;

namespace {

// Makes groups for all ranks: each rank's n-th call gets its place in the n-th group.
class group_factory {
 public:
  group_factory(std::int32_t size, shared_memory_options options) : size_(size), options_(options) {}
  std::string token(std::size_t number) {
    const std::scoped_lock locked(lock_);
    while (groups_.size() <= number) groups_.push_back(shared_memory_group::make(size_, options_).value());
    return groups_[number].token();
  }

 private:
  std::int32_t size_;
  shared_memory_options options_;
  std::mutex lock_;
  std::vector<shared_memory_group> groups_;
};

}  // namespace

TEST_CASE("shared memory passes the conformance suite") {
  const watchdog dog{120s};
  for (const std::int64_t buffer : {0, 4096})
    for (const std::int32_t size : {1, 2, 3}) {
      group_factory groups(size, {.buffer_bytes = buffer});
      std::vector<conformance_report> reports(static_cast<std::size_t>(size));
      std::vector<std::jthread> threads;
      for (std::int32_t rank = 0; rank < size; ++rank)
        threads.emplace_back([&, rank, next = std::size_t{0}]() mutable {
          reports[static_cast<std::size_t>(rank)] = check_communicator([&]() -> result<any_communicator> {
            auto made = shared_memory_communicator::join(groups.token(next++), rank, {.within = 20s});
            if (!made) return std::move(made).error();
            return any_communicator(*std::move(made));
          });
        });
      threads.clear();
      for (const conformance_report& report : reports) CHECK(to_string(report) == to_string(reports.front()));
      INFO(to_string(reports.front()));
      CHECK(reports.front().ok());
      CHECK(reports.front().checks.size() == conformance_checks().size());
    }
}

TEST_CASE("what cannot be a group of processes is refused") {
  const auto text = [](const auto& made) { return made ? "no error" : to_string(made.error()); };
  CHECK(text(shared_memory_group::make(0)) ==
        "a group of processes cannot have this size: expected 1 to 1024 ranks, found 0 ranks");
  CHECK(text(shared_memory_group::make(1025)) ==
        "a group of processes cannot have this size: expected 1 to 1024 ranks, found 1025 ranks");
  CHECK(text(shared_memory_group::make(2, {.buffer_bytes = 100})) ==
        "shared_memory_options::buffer_bytes is out of range: expected 4096 to 1073741824, found 100");
  for (const std::string token : {"", "1", "1:2", "1:2:", "-1:3:00000000000000000000000000000000", "x:y:z",
                                  "1:2:0000000000000000000000000000000g", "1:2:000000000000000000000000000000001"})
    CHECK(shared_memory_communicator::join(token, 0).error().code == errc::invalid_argument);
  // A process that does not exist, a file descriptor that is not ours, and a group with another id.
  const auto group = shared_memory_group::make(1).value();
  const std::string id = group.token().substr(group.token().size() - 32);
  std::string other = group.token();
  other.back() = other.back() == '0' ? '1' : '0';
  for (const std::string& token :
       {"2147483647:3:" + id, group.token().substr(0, group.token().find(':')) + ":0:" + id, other})
    CHECK(shared_memory_communicator::join(token, 0).error().code == errc::io);
}

TEST_CASE("each rank of a group of processes joins once, and all of them in time") {
  const auto group = shared_memory_group::make(2).value();
  const auto outside = shared_memory_communicator::join(group.token(), 2);
  CHECK(to_string(outside.error()) == "rank 2 cannot join the group (rank 2): expected 0 to 1, found 2");
  const auto alone = shared_memory_communicator::join(group.token(), 0, {.within = 50ms});
  REQUIRE(alone.error().code == errc::deadline_exceeded);
  CHECK(alone.error().ranks == std::vector<std::int32_t>{1});
  CHECK(alone.error().message.ends_with(" waiting for messages from rank 1 in joining a group of processes (tag 0)"));
  const auto again = shared_memory_communicator::join(group.token(), 0);
  CHECK(again.error().code == errc::invalid_argument);
  CHECK(again.error().ranks == std::vector<std::int32_t>{0});
  // A rank that comes too late gets the error of the ranks that gave up.
  CHECK(shared_memory_communicator::join(group.token(), 1, {.within = 5s}).error() == alone.error());
}

TEST_CASE("what comes before it is wanted is kept, and messages of one tag stay in order") {
  const watchdog dog{60s};
  const auto group = shared_memory_group::make(2, {.buffer_bytes = 4096}).value();
  std::vector<std::byte> large(100'000, std::byte{7}), small(10, std::byte{8}), later(10, std::byte{9});
  std::jthread other([&] {
    auto comm = shared_memory_communicator::join(group.token(), 1).value();
    const std::vector<outgoing> first{{0, large}}, second{{0, small}}, third{{0, later}};
    auto a = comm.start_exchange(first, {}, {.tag = 1}).value();
    auto b = comm.start_exchange(second, {}, {.tag = 2}).value();
    auto c = comm.start_exchange(third, {}, {.tag = 2}).value();
    CHECK(a.wait());
    CHECK(b.wait());
    CHECK(c.wait());
  });
  auto comm = shared_memory_communicator::join(group.token(), 0).value();
  std::vector<std::byte> one(100'000), two(10), three(10);
  const std::vector<incoming> to_one{{1, one}}, to_two{{1, two}}, to_three{{1, three}};
  CHECK(comm.start_exchange({}, to_two, {.tag = 2}).value().wait());  // sent after the large one
  CHECK(comm.start_exchange({}, to_three, {.tag = 2}).value().wait());
  CHECK(comm.start_exchange({}, to_one, {.tag = 1}).value().wait());
  CHECK(one == large);
  CHECK(two == small);
  CHECK(three == later);
}
