// SPDX-License-Identifier: Apache-2.0
#include "watch.hpp"

#include <thread>

import shardmesh;
import shardmesh.core;

namespace bindings {

std::exception_ptr watch::run(const std::function<void(watch&)>& work, const std::function<void()>& look,
                              const std::function<time()>& next_look) {
  is_watched_ = true;
  std::exception_ptr thrown;
  std::thread worker([&] {
    try {
      // Also ends the requests of work that takes no cancellation.
      const shardmesh::detail::call_scope limits({.cancel = stop.get_token()});
      work(*this);
    } catch (...) {
      thrown = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    is_done_ = true;
    changed_.notify_all();
  });
  std::unique_lock lock(mutex_);
  const auto is_wanted = [this] { return is_done_ || is_asked_; };
  for (bool was_last = false; !is_done_;) {
    if (was_last)
      changed_.wait(lock, is_wanted);
    else
      changed_.wait_until(lock, next_look(), is_wanted);
    if (is_done_) break;
    const bool was_asked = is_asked_;
    lock.unlock();
    look();
    lock.lock();
    if (!was_asked) continue;  // a request that came meanwhile needs another look
    is_asked_ = false;
    was_last = true;
    changed_.notify_all();
  }
  lock.unlock();
  worker.join();
  return thrown;
}

void watch::ask() {
  std::unique_lock lock(mutex_);
  if (!is_watched_) return;
  is_asked_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return !is_asked_; });
}

watch::time in_a_moment() {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
}

}  // namespace bindings
