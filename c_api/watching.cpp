// SPDX-License-Identifier: Apache-2.0
#include "watching.hpp"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "border.hpp"

import shardmesh;

namespace c_api {

namespace {

using clock_type = std::chrono::steady_clock;

// Between two looks: short enough for a person who wants to stop.
constexpr std::chrono::milliseconds pause{50};

// What the calling thread does while the work goes on.
class watcher {
 public:
  explicit watcher(const shardmesh_call& call) : call_(call), deadline_(deadline_after(call.timeout_milliseconds)) {}

  void run(const std::function<void(bindings::watch&)>& work) {
    std::thread worker([&] {
      try {
        work(watching_);
      } catch (...) {
        thrown_ = std::current_exception();
      }
      const std::lock_guard lock(mutex_);
      is_done_ = true;
      changed_.notify_one();
    });
    std::unique_lock lock(mutex_);
    while (!changed_.wait_until(lock, next_look(), [this] { return is_done_; })) {
      lock.unlock();
      look();
      lock.lock();
    }
    lock.unlock();
    worker.join();
    tell();
    if (thrown_) rethrow();
  }

 private:
  clock_type::time_point next_look() const {
    const auto soon = clock_type::now() + pause;
    return deadline_ && !is_late_ ? std::min(soon, *deadline_) : soon;
  }

  void look() {
    if (!is_stopped() && deadline_ && clock_type::now() >= *deadline_) {
      is_late_ = true;
      watching_.stop.request_stop();
    }
    if (!is_stopped() && tell() != 0) watching_.stop.request_stop();
  }

  bool is_stopped() const { return watching_.stop.stop_requested(); }
  std::int32_t tell() const { return call_.progress == nullptr ? 0 : call_.progress(call_.user, watching_.bytes); }

  // The work knows of one way to be stopped only.
  [[noreturn]] void rethrow() const {
    try {
      std::rethrow_exception(thrown_);
    } catch (refusal& e) {
      for (shardmesh::error& problem : e.problems)
        if (is_late_ && problem.code == shardmesh::errc::cancelled) {
          problem.code = shardmesh::errc::deadline_exceeded;
          problem.message = "the time for the call is over";
        }
      throw;
    }
  }

  const shardmesh_call& call_;
  std::optional<clock_type::time_point> deadline_;
  bindings::watch watching_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_done_ = false, is_late_ = false;
  std::exception_ptr thrown_;
};

}  // namespace

std::optional<clock_type::time_point> deadline_after(std::int64_t timeout_milliseconds) {
  constexpr std::int64_t longest = std::int64_t{1000} * 60 * 60 * 24 * 365;
  if (timeout_milliseconds < 0) refuse_argument("timeout_milliseconds", "is negative");
  if (timeout_milliseconds == 0 || timeout_milliseconds > longest) return std::nullopt;
  return clock_type::now() + std::chrono::milliseconds(timeout_milliseconds);
}

bool is_watched(const shardmesh_call* call) {
  return call != nullptr && (call->progress != nullptr || call->timeout_milliseconds != 0);
}

void run_watched(const shardmesh_call* call, const std::function<void(bindings::watch&)>& work) {
  const shardmesh_call wanted = given(call, "call");
  if (is_watched(&wanted)) return watcher(wanted).run(work);
  bindings::watch unwatched;
  work(unwatched);
}

void check_stopped(const bindings::watch& watching) {
  if (watching.stop.stop_requested()) refuse(shardmesh::fail(shardmesh::errc::cancelled, "interrupted"));
}

}  // namespace c_api
