// SPDX-License-Identifier: Apache-2.0
// Tests a fork of an NCCL rank: the device, the library, and the other ranks belong to the parent. The double counts
// the calls of forked children.
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <forked_child.hpp>
#include <gpu_double/on_double.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include <watchdog.hpp>
import shardmesh.test.gpu_ranks;

using namespace shardmesh;
using namespace std::chrono_literals;
using test::device_bytes;

namespace {

// Returns 0 if every call is refused and every object is released.
int use_and_destroy(std::optional<nccl_communicator> comm, std::optional<pending> moving,
                    std::optional<nccl_registration> registered, std::span<std::byte> memory,
                    any_communicator& control) {
  const std::string name = "rank " + std::to_string(comm->rank());
  const auto is_refused = [&](const error& e, const std::string& hint) {
    return e.code == errc::invalid_argument && to_string(e) == "the communicator of " + name +
                                                                   " belongs to the process that forked this one (" +
                                                                   name + "); " + hint;
  };
  const std::string hint = "make the call in the parent";
  const outgoing to_other{1 - comm->rank(), memory};
  const std::int32_t together[] = {0, 0};
  if (!is_refused(comm->all_gather({}, {}).error(), hint)) return 1;
  if (!is_refused(comm->start_exchange({&to_other, 1}, {}, {}).error(), hint)) return 2;
  if (!is_refused(comm->all_reduce(memory, memory, dtype::uint8, reduce_op::sum, {}).error(), hint)) return 3;
  if (!moving->done() || !is_refused(moving->wait().error(), hint)) return 4;
  if (!is_refused(comm->register_memory(memory).error(), hint)) return 5;
  if (!is_refused(comm->split(0, 0, {}).error(), hint)) return 6;
  if (!is_refused(comm->groups(together, {}).error(), hint)) return 7;
  if (!is_refused(comm->status().error(), hint)) return 8;
  const auto made =
      nccl_communicator::make(control, comm->memory(), {.nccl = SHARDMESH_GPU_DOUBLE, .cudart = SHARDMESH_GPU_DOUBLE});
  if (!is_refused(made.error(), "make a group in the child, or " + hint)) return 9;
  comm->abort(fail(errc::cancelled, "by the child"));
  moving.reset();
  registered.reset();
  comm.reset();
  return 0;
}

}  // namespace

TEST_CASE("a forked child's copy of a NCCL communicator refuses calls, and its end calls nothing of NCCL or CUDA",
          "[double]") {
  const on_double fresh;
  const watchdog dog{60s};
  const std::int64_t before = double_calls_of_children();
  const std::string wrong =
      test::on_gpus(SHARDMESH_GPU_DOUBLE, 2, [](nccl_communicator& given, any_communicator& control) -> std::string {
        std::optional<nccl_communicator> comm = given.duplicate().value();  // the child's copy is the last reference
        const std::int32_t other = 1 - comm->rank();
        device_bytes room(comm->memory(), 1000);
        const std::vector<std::byte> bytes(1000, static_cast<std::byte>(comm->rank() + 1));
        device_bytes sent(comm->memory(), bytes);
        std::optional<nccl_registration> registered = comm->register_memory(sent.there()).value();
        const incoming from_other{other, room.there()};
        const outgoing to_other{other, sent.there()};
        std::optional<pending> moving = comm->start_exchange({&to_other, 1}, {&from_other, 1}, {}).value();
        const int status = status_of_child([&] {
          return use_and_destroy(std::exchange(comm, {}), std::exchange(moving, {}), std::exchange(registered, {}),
                                 room.there(), control);
        });
        if (status != 0) return "the child that uses its copies ended with " + std::to_string(status);
        std::fflush(stdout);  // else the child writes it as well
        const pid_t child = ::fork();
        if (child == 0) {
          ::alarm(20);
          std::exit(0);
        }
        if (const int ended = exit_status_of(child); ended != 0)
          return "the child that exits ended with " + std::to_string(ended);
        if (!control.all_gather({}, {})) return "the ranks do not meet";
        if (auto done = moving->wait(); !done) return to_string(done.error());
        const std::vector<std::byte> expected(1000, static_cast<std::byte>(other + 1));
        if (room.here() != expected) return "the message differs";
        return comm->status() ? "" : to_string(comm->status().error());
      });
  CHECK(wrong == "");
  CHECK(double_calls_of_children() - before == 0);
}
