// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :concurrent_runs;
import :run;

namespace shardmesh {
namespace {

using run_list = std::vector<std::weak_ptr<started_run>>;

// The runs that this thread started and that may be unfinished. The thread-local variable is a raw pointer, because
// registering a destructor with the thread allocates memory. If that fails, the C library ends the process.
run_list& runs_of_thread() {
  thread_local run_list* mine = nullptr;
  if (mine) return *mine;
  static std::mutex lock;
  static auto& all = *new std::map<std::thread::id, run_list>;  // outlives every thread
  const std::lock_guard locked(lock);
  mine = &all[std::this_thread::get_id()];  // perhaps left by an ended thread with the same id
  return *mine;
}

void forget_what_is_over() {
  std::erase_if(runs_of_thread(), [](const std::weak_ptr<started_run>& entry) {
    const auto run = entry.lock();
    return !run || run->is_over;
  });
}

// Helps every other run once. Returns false if there is none.
bool help_others(communicator_ref comm, const started_run* self) {
  bool any = false;
  auto& runs = runs_of_thread();
  for (std::size_t i = 0; i < runs.size();) {
    const auto run = runs[i].lock();
    if (!run || run->is_over) {
      runs[i] = std::move(runs.back());
      runs.pop_back();
      continue;
    }
    ++i;
    if (run.get() == self || !(run->work->communicator() == comm)) continue;
    any = true;
    run->help();
  }
  return any;
}

// Yields at first, then sleeps for longer and longer.
void pause(int round) {
  if (round < 64)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(std::min(round, 500)));
}

}  // namespace

bool started_run::advance(bool may_block) {
  const std::lock_guard locked(lock);
  if (thrown) std::rethrow_exception(std::exchange(thrown, nullptr));
  if (!over) over = work->advance_safely(may_block);
  is_over = over.has_value();
  return over.has_value();
}

void started_run::help() {
  const std::unique_lock locked(lock, std::try_to_lock);
  if (!locked || over || thrown) return;
  try {
    over = work->advance_safely(false);
    is_over = over.has_value();
  } catch (...) {
    thrown = std::current_exception();  // thrown again where this run is waited for
    is_over = true;
  }
}

void remember(const std::shared_ptr<started_run>& run) {
  forget_what_is_over();
  runs_of_thread().push_back(run);
}

void advance_together(communicator_ref comm, const started_run* self, function_ref<bool(bool)> advance) {
  for (int round = 0; help_others(comm, self); ++round) {
    if (advance(false)) return forget_what_is_over();
    pause(round);
  }
  static_cast<void>(advance(true));
  forget_what_is_over();
}

}  // namespace shardmesh
