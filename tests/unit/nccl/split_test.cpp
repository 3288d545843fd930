// SPDX-License-Identifier: Apache-2.0
// Tests communicators that are split from others, and registered memory, on the double.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <gpu_double/on_double.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include <watchdog.hpp>
import shardmesh.test.gpu_ranks;

using namespace shardmesh;
using test::device_bytes;

namespace {

// The sum of one number of each rank.
std::string sum(nccl_communicator& comm, std::int64_t mine, std::int64_t expected, const call_options& options = {}) {
  device_bytes there(comm.memory(), std::as_bytes(std::span(&mine, 1)));
  auto started = comm.all_reduce(there.there(), there.there(), dtype::int64, reduce_op::sum, options);
  if (!started) return to_string(started.error());
  if (const auto done = started->wait(); !done) return to_string(done.error());
  const auto bytes = there.here();
  const auto want = std::as_bytes(std::span(&expected, 1));
  return std::equal(bytes.begin(), bytes.end(), want.begin(), want.end()) ? "" : "another sum";
}

}  // namespace

TEST_CASE("split makes groups in the order that is asked for, and a negative group is none") {
  const watchdog dog{std::chrono::seconds(60)};
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const on_double fresh(seed);
    CHECK(test::on_gpus(SHARDMESH_GPU_DOUBLE, 5, [&](nccl_communicator& comm, any_communicator&) -> std::string {
            const std::int32_t rank = comm.rank();
            // Ranks 0 and 2 form one group, in reverse order; 1 and 3 form another; 4 is in none.
            const auto part = comm.split(rank == 4 ? -1 : rank % 2, rank % 2 == 0 ? -rank : rank);
            if (!part) return to_string(part.error());
            if (rank == 4) return *part ? "a communicator without a group" : sum(comm, rank, 10);
            auto own = **part;
            const std::int32_t expected = rank % 2 == 0 ? 1 - rank / 2 : rank / 2;
            if (own.size() != 2 || own.rank() != expected || own.memory() != comm.memory()) return "another rank";
            const auto all = own.all_gather(std::as_bytes(std::span(&rank, 1)), {});
            if (!all) return to_string(all.error());
            std::string wrong = sum(own, rank, rank % 2 == 0 ? 2 : 4);
            return wrong + sum(comm, rank, 10);
          }) == "");
  }
}

TEST_CASE("a duplicate is a communicator of its own: its messages and the first one's do not meet") {
  const watchdog dog{std::chrono::seconds(60)};
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const on_double fresh(seed);
    CHECK(test::on_gpus(SHARDMESH_GPU_DOUBLE, 3, [&](nccl_communicator& comm, any_communicator&) -> std::string {
            auto other = comm.duplicate();
            if (!other) return to_string(other.error());
            const std::int64_t mine = comm.rank() + 1, far = 100 * mine;
            device_bytes a(comm.memory(), std::as_bytes(std::span(&mine, 1))),
                b(comm.memory(), std::as_bytes(std::span(&far, 1)));
            // Started in different orders on different ranks.
            std::optional<result<pending>> first, second;
            const auto start_a = [&] {
              first = comm.all_reduce(a.there(), a.there(), dtype::int64, reduce_op::sum, {});
            };
            const auto start_b = [&] {
              second = other->all_reduce(b.there(), b.there(), dtype::int64, reduce_op::sum, {});
            };
            if (comm.rank() == 1) {
              start_b(), start_a();
            } else {
              start_a(), start_b();
            }
            if (!*first || !*second) return "not started";
            const auto done_b = (*second)->wait(), done_a = (*first)->wait();
            if (!done_a || !done_b) return "not done";
            const std::int64_t six = 6, six_hundred = 600;
            const auto is = [](const std::vector<std::byte>& found, const std::int64_t& value) {
              const auto want = std::as_bytes(std::span(&value, 1));
              return std::equal(found.begin(), found.end(), want.begin(), want.end());
            };
            return is(a.here(), six) && is(b.here(), six_hundred) ? "" : "other sums";
          }) == "");
  }
}

TEST_CASE("memory is registered for as long as its registration lives") {
  const on_double fresh;
  CHECK(test::on_gpus(SHARDMESH_GPU_DOUBLE, 2, [&](nccl_communicator& comm, any_communicator&) -> std::string {
          device_bytes there(comm.memory(), 4096);
          std::vector<std::byte> host(64);
          if (comm.register_memory(host)) return "memory of the host was registered";
          const auto registration = comm.register_memory(there.there());
          if (!registration) return to_string(registration.error());
          return sum(comm, 1, 2);
        }) == "");
  CHECK(double_calls("ncclCommRegister") == 2);
  CHECK(double_calls("ncclCommDeregister") == 2);
}

TEST_CASE("what poisons a part poisons all that share its control") {
  const watchdog dog{std::chrono::seconds(60)};
  double_reset(1);
  CHECK(test::on_gpus(SHARDMESH_GPU_DOUBLE, 3, [&](nccl_communicator& comm, any_communicator&) -> std::string {
          auto part = comm.split(comm.rank() == 2 ? -1 : 0, 0);
          if (!part) return to_string(part.error());
          if (comm.rank() == 0) (*part)->abort(fail(errc::no_space, "enough"));
          const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
          while (comm.status() && std::chrono::steady_clock::now() < end) {
          }
          const auto told = comm.status();
          return !told && told.error().code == errc::no_space && told.error().ranks == std::vector<std::int32_t>{0}
                     ? ""
                     : "another error";
        }) == "");
}
