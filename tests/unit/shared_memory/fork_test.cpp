// SPDX-License-Identifier: Apache-2.0
// Tests a fork of a rank: the child must neither use nor give up the parent's place. The file has no other tests,
// because the children end without Catch2's knowledge.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <forked_child.hpp>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <watchdog.hpp>

import shardmesh.shared_memory;

using namespace shardmesh;
using namespace std::chrono_literals;

namespace {

// Runs `work` in a new process space with this setting. Returns 77 where the system does not allow that.
int with_setting(const char* value, const std::function<int()>& work) {
  if (::unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) return 77;
  return status_of_child([&] {
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return 77;
    if (::mount("proc", "/proc", "proc", 0, nullptr) != 0) return 77;
    const int file = ::open("/proc/sys/vm/memfd_noexec", O_WRONLY | O_CLOEXEC);
    const bool is_set = file >= 0 && ::write(file, value, 1) == 1;
    return is_set ? work() : 77;
  });
}

}  // namespace

TEST_CASE("a forked child that lets go of its copy of a rank does not leave the parent's group") {
  const watchdog dog{60s};
  const auto group = shared_memory_group::make(2).value();
  std::optional<shared_memory_communicator> zero, one;
  std::jthread other([&] { one = shared_memory_communicator::join(group.token(), 1, {.within = 20s}).value(); });
  zero = shared_memory_communicator::join(group.token(), 0, {.within = 20s}).value();
  other.join();
  std::vector<std::byte> sent(64 << 10, std::byte{5}), room(sent.size());
  const outgoing to_one{1, sent};
  const incoming from_zero{0, room};
  std::optional<pending> receiving = one->start_exchange({}, std::span(&from_zero, 1), {}).value();
  const int status = status_of_child([&] {
    const auto refused = [](const error& problem) {
      return problem.code == errc::invalid_argument && problem.message.find("forked") != std::string::npos;
    };
    if (!refused(zero->all_gather({}, {}).error())) return 1;
    if (!refused(zero->start_exchange(std::span(&to_one, 1), {}, {}).error())) return 2;
    if (!refused(receiving->wait().error())) return 3;
    zero->abort(fail(errc::cancelled, "by the child"));
    if (!refused(zero->status().error())) return 4;
    receiving.reset();
    zero.reset();
    one.reset();
    return 0;
  });
  CHECK(status == 0);
  auto sending = zero->start_exchange(std::span(&to_one, 1), {}, {}).value();
  CHECK(receiving->wait());
  CHECK(sending.wait());
  CHECK(room == sent);
}

TEST_CASE("groups of processes are made and joined where vm.memfd_noexec is 1 or 2") {
  for (const char* value : {"1", "2"}) {
    const int status = status_of_child([&] {
      return with_setting(value, [] {
        const auto group = shared_memory_group::make(1);
        if (!group) return 1;
        return shared_memory_communicator::join(group->token(), 0, {.within = 5s}) ? 0 : 2;
      });
    });
    if (status == 77) SKIP("this system does not let the test set vm.memfd_noexec");
    CHECK(status == 0);
  }
}
