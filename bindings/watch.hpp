// SPDX-License-Identifier: Apache-2.0
// What long work is given by whoever watches it from another thread. Of the Python package and the C interface.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <stop_token>

import shardmesh;

namespace bindings {

/// What the work is given: whether to go on, and where to say how far it is. Both from any thread.
struct watch {
  std::stop_source stop;
  std::atomic<std::int64_t> bytes = 0;

  shardmesh::call_options call() const { return {.cancel = stop.get_token()}; }
  std::function<void(std::int64_t)> progress() {
    return [this](std::int64_t more) { bytes += more; };
  }
  /// Has the watching thread look for the last time, and waits until it has: what it would say later is too late.
  std::function<void()> before_commit() {
    return [this] { ask(); };
  }

  using time = std::chrono::steady_clock::time_point;
  /// Runs `work` in a thread of its own. Until it is done, this thread calls `look`: whenever the time is
  /// `next_look()`, and before the work commits. `look` must not throw. Returns what the work threw.
  std::exception_ptr run(const std::function<void(watch&)>& work, const std::function<void()>& look,
                         const std::function<time()>& next_look);

 private:
  void ask();

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_watched_ = false, is_asked_ = false, is_done_ = false;
};

/// The time of the next look: short enough for a person who wants to stop.
watch::time in_a_moment();

}  // namespace bindings
