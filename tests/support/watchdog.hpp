// SPDX-License-Identifier: Apache-2.0
// Aborts the test program with a message when a test takes too long, so that a hang is a failure.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stop_token>
#include <thread>

class watchdog {
 public:
  explicit watchdog(std::chrono::seconds limit)
      : thread_([limit](const std::stop_token& stop) {
          std::mutex lock;
          std::condition_variable_any over;
          std::unique_lock guard(lock);
          if (over.wait_for(guard, stop, limit, [&] { return stop.stop_requested(); })) return;
          std::fprintf(stderr, "watchdog: a test did not end within %lld s\n", static_cast<long long>(limit.count()));
          std::abort();
        }) {}

 private:
  std::jthread thread_;
};
