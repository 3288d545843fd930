// SPDX-License-Identifier: Apache-2.0
// Tests that SIGTERM is noted while a termination_signal lives, and that a training saves a last step in time.
#include <signal.h>
#include <shardmesh/try.hpp>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <scratch_folder.hpp>
#include <string>
#include <utility>
#include <vector>

#include "run_states.hpp"

using namespace shardmesh;
using namespace run_states;
using namespace std::chrono_literals;

namespace {

volatile std::sig_atomic_t earlier_calls = 0;

void count_call(int) {
  earlier_calls = earlier_calls + 1;
}

// Trains until the scheduler ends the job, saves the last step in the time that is left, and returns the step.
result<std::int64_t> train_until_the_end(checkpoint_run& run, communicator_ref comm) {
  const termination_signal signal;
  for (std::int64_t step = 1;; ++step) {
    trainer state = trained(comm, step);
    if (step == 3 && comm.rank() == 1) ::raise(SIGTERM);
    SHARDMESH_TRY(const bool is_ending, signal.has_arrived_on_any(comm));
    if (!is_ending) continue;
    run_save_options last;
    last.saving.within = signal.deadline(20s);
    SHARDMESH_TRY(run.save(step, state, comm, last));
    return step;
  }
}

}  // namespace

TEST_CASE("SIGTERM is noted by all living objects, and afterwards the earlier handler is called again") {
  struct sigaction counting{}, before{};
  counting.sa_handler = count_call;
  ::sigaction(SIGTERM, &counting, &before);
  {
    const termination_signal one;
    CHECK_FALSE(one.has_arrived());
    {
      const termination_signal two;
      ::raise(SIGTERM);
      CHECK(two.has_arrived());
    }
    CHECK(one.has_arrived());
    CHECK(earlier_calls == 0);
  }
  {
    const termination_signal later;
    CHECK_FALSE(later.has_arrived());
  }
  ::raise(SIGTERM);
  CHECK(earlier_calls == 1);
  ::sigaction(SIGTERM, &before, nullptr);
}

TEST_CASE("the time budget begins when the first SIGTERM arrives") {
  const termination_signal signal;
  const auto before = std::chrono::steady_clock::now();
  ::raise(SIGTERM);
  const auto after = std::chrono::steady_clock::now();
  ::raise(SIGTERM);
  const auto slack = 1ms;  // of rounding
  CHECK(*signal.deadline(10s) >= before + 10s - slack);
  CHECK(*signal.deadline(10s) <= after + 10s + slack);
  CHECK(*signal.deadline(0ms) <= after + slack);
  CHECK(*signal.deadline(std::chrono::milliseconds::max()) > after + std::chrono::hours(1'000'000));
}

TEST_CASE("without a signal, the time budget begins now") {
  const termination_signal signal;
  const auto before = std::chrono::steady_clock::now();
  const time_limit end = signal.deadline(10s);
  const auto after = std::chrono::steady_clock::now();
  CHECK(*end >= before + 10s - 1ms);
  CHECK(*end <= after + 10s + 1ms);
}

TEST_CASE("a signal at one rank lets all ranks save the same last step") {
  const scratch_folder scratch;
  const std::filesystem::path folder = scratch / "run";
  std::vector<std::int64_t> saved(2);
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    SHARDMESH_TRY(checkpoint_run run, checkpoint_run::open(folder, comm));
    SHARDMESH_TRY(saved[static_cast<std::size_t>(comm.rank())], train_until_the_end(run, comm));
    return {};
  });
  CHECK(saved == std::vector<std::int64_t>{3, 3});
  CHECK(numbers_in(folder) == std::vector<std::int64_t>{3});
  CHECK(check_step(folder / "step-3", {.deep = true}).ok());
}
