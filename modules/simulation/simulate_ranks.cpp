// SPDX-License-Identifier: Apache-2.0
// The threads of a simulation. std::thread cannot set the size of a stack, so they are POSIX threads.
module;
#include <fmt/format.h>
#include <pthread.h>
#include <shardmesh/try.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.simulation;

import :engine;
import :thread_limits;

namespace shardmesh {
namespace {

using rank_body = function_ref<result<void>(any_communicator&)>;

constexpr std::int64_t least_stack = std::int64_t{128} << 10, largest_stack = std::int64_t{1} << 30;

// The frames of code that a sanitizer checks are several times as large.
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr std::int64_t stack_factor = 4;
#else
constexpr std::int64_t stack_factor = 1;
#endif

// The state that the threads of a simulation share. A thread writes to it only while it has the turn.
struct simulation_run {
  std::shared_ptr<simulation_state> state;
  rank_body body;
  bool is_refused = false;  // some thread did not start, so no rank runs
  bool failed = false;
};

struct rank_thread {
  simulation_run* run = nullptr;
  std::int32_t rank = 0;
  ::pthread_t thread{};
};

void* run_rank(void* given) {
  const rank_thread& self = *static_cast<const rank_thread*>(given);
  simulation_run& run = *self.run;
  run.state->begin_thread(self.rank);
  if (run.is_refused) return nullptr;
  {
    any_communicator comm(run.state->communicator(self.rank));
    if (const auto done = detail::run_body(comm, run.body); !done) {
      run.failed = true;
      comm.abort(done.error());  // no effect when this error is a consequence of an earlier one
    }
  }
  run.state->end_thread(self.rank);
  return nullptr;
}

result<void> check_stack(std::int64_t stack_bytes) {
  if (stack_bytes >= least_stack && stack_bytes <= largest_stack) return {};
  return fail(errc::invalid_argument, "simulation_options::stack_bytes is out of range")
      .with_values(fmt::format("{} to {}", least_stack, largest_stack), fmt::to_string(stack_bytes));
}

// Starts the threads, which wait for their first turns. After an error none of them is left.
result<void> start_threads(simulation_run& run, std::vector<rank_thread>& threads, std::int64_t stack_bytes) {
  ::pthread_attr_t attributes;
  if (const int sys = ::pthread_attr_init(&attributes); sys != 0) return thread_not_started(sys, 0, run.state->size());
  int sys = ::pthread_attr_setstacksize(&attributes, static_cast<std::size_t>(stack_bytes * stack_factor));
  std::size_t started = 0;
  while (sys == 0 && started < threads.size()) {
    rank_thread& one = threads[started];
    one.run = &run;
    one.rank = static_cast<std::int32_t>(started);
    sys = ::pthread_create(&one.thread, &attributes, run_rank, &one);
    if (sys == 0) ++started;
  }
  ::pthread_attr_destroy(&attributes);
  if (sys == 0) return {};
  run.is_refused = true;
  for (const rank_thread& one : std::span(threads).first(started)) {
    run.state->give_turn(one.rank);
    ::pthread_join(one.thread, nullptr);
  }
  return thread_not_started(sys, static_cast<std::int32_t>(started), run.state->size());
}

}  // namespace

result<simulation_report> simulate_ranks(std::int32_t size, function_ref<result<void>(any_communicator&)> body,
                                         const simulation_options& options) {
  if (size < 1)
    return fail(errc::invalid_argument, "a simulation needs at least one rank")
        .with_values("1 or more", fmt::to_string(size));
  SHARDMESH_TRY(options.network.check());
  SHARDMESH_TRY(check_stack(options.stack_bytes));
  SHARDMESH_TRY(check_thread_limits(size));
  simulation_run run{std::make_shared<simulation_state>(size, options), body};
  std::vector<rank_thread> threads(static_cast<std::size_t>(size));
  SHARDMESH_TRY(start_threads(run, threads, options.stack_bytes));
  run.state->start();
  for (const rank_thread& one : threads) ::pthread_join(one.thread, nullptr);
  if (run.failed) SHARDMESH_TRY(run.state->status());
  return std::move(*run.state).report();
}

}  // namespace shardmesh
