// SPDX-License-Identifier: Apache-2.0
// A link between long work and the thread that watches it. The Python package and the C interface use it.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <stop_token>

namespace bindings {

/// The work's side of the link: it asks whether to continue, and reports its progress. Both work from any thread.
struct watch {
  std::stop_source stop;
  std::atomic<std::int64_t> bytes = 0;

  std::function<void(std::int64_t)> progress() {
    return [this](std::int64_t more) { bytes += more; };
  }
  /// Makes the watching thread look for the last time, and waits until it has. A later request to stop would come too
  /// late.
  std::function<void()> before_commit() {
    return [this] { ask(); };
  }

  using time = std::chrono::steady_clock::time_point;
  /// Runs `work` in its own thread. Until the work is done, this thread calls `look`: at each `next_look()`, and before
  /// the work commits. `look` must not throw. Returns the exception that the work threw.
  std::exception_ptr run(const std::function<void(watch&)>& work, const std::function<void()>& look,
                         const std::function<time()>& next_look);

 private:
  void ask();

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_watched_ = false, is_asked_ = false, is_done_ = false;
};

/// The time of the next look, soon enough for a user who wants to stop.
watch::time in_a_moment();

}  // namespace bindings
