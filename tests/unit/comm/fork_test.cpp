// SPDX-License-Identifier: Apache-2.0
// Tests a fork of a process with a thread group. The child lacks the threads, so nothing in it may wait for them or for
// their locks.
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <forked_child.hpp>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>
#include <watchdog.hpp>
import shardmesh.comm;

using namespace shardmesh;

namespace {

using bytes = std::vector<std::byte>;

bool sleeps(pid_t thread) {
  std::string number, name;
  char state = 0;
  std::ifstream("/proc/self/task/" + std::to_string(thread) + "/stat") >> number >> name >> state;
  return state == 'S';
}

bool is_refusal(const error& problem, std::int32_t rank) {
  const std::string name = "rank " + std::to_string(rank);
  return problem.code == errc::invalid_argument &&
         to_string(problem) == "the communicator of " + name + " belongs to the process that forked this one (" + name +
                                   "); make a group in the child, or make the call in the parent";
}

struct one_row final : lender {
  const_tensor_view piece(std::size_t) const override {
    return {reinterpret_cast<const std::byte*>(&value), dtype::int32, {}, {1}, {1}};
  }
  std::int32_t value = 7;
};

}  // namespace

TEST_CASE("a forked child's copy of a group of threads refuses every call and leaves the parent's alone") {
  const watchdog dog(std::chrono::seconds(60));
  std::optional<thread_group> group(2);
  std::optional<thread_communicator> zero = group->communicator(0), one = group->communicator(1);
  const bytes sent(100'000, std::byte{5});
  const outgoing to_one{1, sent};
  const one_row row;
  const lent row_to_one{1, &row, 4};
  const borrowed row_of_one{1, 4};
  std::optional<pending> sending = zero->start_exchange(std::span(&to_one, 1), {}, {}).value();
  std::optional<lending> lends = zero->start_lending(std::span(&row_to_one, 1), {}, {.tag = 1}).value();
  std::optional<lending> borrows = zero->start_lending({}, std::span(&row_of_one, 1), {.tag = 2}).value();

  // At the fork, rank 1 sleeps in a wait, and rank 1's thread owns no handle.
  const bytes said{std::byte{1}};
  result<std::vector<bytes>> heard = fail(errc::cancelled, "nothing was gathered");
  std::atomic<pid_t> waiter = 0;
  std::jthread other([&] {
    waiter = static_cast<pid_t>(::syscall(SYS_gettid));
    heard = one->all_gather(said, {});
  });
  while (waiter == 0 || group->trace().find("rank 1: in all_gather") == std::string::npos || !sleeps(waiter))
    std::this_thread::yield();

  CHECK(status_of_child([&] {
          if (!is_refusal(zero->all_gather({}, {}).error(), 0)) return 1;
          if (!is_refusal(one->start_exchange({}, {}, {}).error(), 1)) return 2;
          if (!is_refusal(zero->start_lending({}, {}, {}).error(), 0)) return 3;
          if (!sending->done() || !is_refusal(sending->wait().error(), 0)) return 4;
          if (!lends->done() || !is_refusal(lends->wait().error(), 0)) return 5;
          if (!borrows->ready() || !is_refusal(borrows->wait_ready().error(), 0)) return 6;
          if (!borrows->interrupted()) return 7;
          if (!is_refusal(group->status().error(), 0)) return 8;
          if (group->trace() != "the ranks belong to the process that forked this one\n") return 9;
          zero->abort(fail(errc::cancelled, "by the child"));
          group->leave(0);
          borrows.reset();
          lends.reset();
          sending.reset();
          zero.reset();
          one.reset();
          group.reset();
          // The child runs ranks of its own.
          return run_ranks(2,
                           [](any_communicator& comm) -> result<void> {
                             const auto all = comm.all_gather({}, {});
                             return all ? result<void>{} : result<void>(all.error());
                           })
                     ? 0
                     : 10;
        }) == 0);

  const auto all = zero->all_gather({}, {});
  other.join();
  REQUIRE(all);
  CHECK(*all == std::vector<bytes>{{}, said});
  REQUIRE(heard);
  CHECK(*heard == *all);
  bytes room(sent.size());
  const incoming from_zero{0, room};
  auto receiving = one->start_exchange({}, std::span(&from_zero, 1), {}).value();
  CHECK(receiving.wait());
  CHECK(sending->wait());
  CHECK(room == sent);
  CHECK(group->status());
  group->leave(1);  // nobody reads the lent memory
}

// A forked child may make communicators of its own, and needs object numbers for them.
TEST_CASE("a forked child goes on with object numbers that another thread was changing at the fork") {
  const watchdog dog(std::chrono::seconds(120));
  object_numbers numbers;
  const held_number kept = numbers.hold(numbered_object::executor, 3);
  std::jthread other([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const held_number held = numbers.hold(numbered_object::executor, 5);
      static_cast<void>(numbers.offer(numbered_object::executor));
    }
  });
  for (int i = 0; i < 200; ++i)
    REQUIRE(status_of_child([&] {
              const auto offer = numbers.offer(numbered_object::executor);
              const std::span<const std::byte> offers[] = {offer};
              const auto number = numbers.choose(numbered_object::executor, offers);
              if (!number || *number == 3) return 1;
              const held_number mine = numbers.hold(numbered_object::executor, *number);
              return mine.value() == *number ? 0 : 2;
            }) == 0);
}
