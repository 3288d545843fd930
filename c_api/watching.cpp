// SPDX-License-Identifier: Apache-2.0
#include "watching.hpp"

#include <algorithm>
#include <chrono>
#include <exception>

#include "border.hpp"

import shardmesh;

namespace c_api {

namespace {

using clock_type = std::chrono::steady_clock;

// The calling thread's part while the work runs.
class watcher {
 public:
  explicit watcher(const shardmesh_call& call) : call_(call), deadline_(deadline_after(call.timeout_milliseconds)) {}

  void run(const std::function<void(bindings::watch&)>& work) {
    const auto thrown = watching_.run(work, [this] { look(); }, [this] { return next_look(); });
    if (told_ != watching_.bytes) tell();
    if (thrown) rethrow(thrown);
  }

 private:
  clock_type::time_point next_look() const {
    const auto soon = bindings::in_a_moment();
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
  std::int32_t tell() {
    told_ = watching_.bytes;
    return call_.progress == nullptr ? 0 : call_.progress(call_.user, told_);
  }

  // The work knows only one way to be stopped.
  [[noreturn]] void rethrow(const std::exception_ptr& thrown) const {
    try {
      std::rethrow_exception(thrown);
    } catch (refusal& e) {
      for (shardmesh::error& problem : e.problems)
        if (is_late_ && problem.code == shardmesh::errc::cancelled) {
          problem.code = shardmesh::errc::deadline_exceeded;
          problem.message = "the deadline of the call has passed";
        }
      throw;
    }
  }

  const shardmesh_call& call_;
  shardmesh::time_limit deadline_;
  bindings::watch watching_;
  std::int64_t told_ = -1;
  bool is_late_ = false;
};

}  // namespace

shardmesh::time_limit deadline_after(std::int64_t timeout_milliseconds) {
  constexpr std::int64_t longest = std::int64_t{1000} * 60 * 60 * 24 * 365;
  if (timeout_milliseconds < 0) refuse_argument("timeout_milliseconds", "is negative");
  if (timeout_milliseconds == 0 || timeout_milliseconds > longest) return std::nullopt;
  return std::chrono::milliseconds(timeout_milliseconds);
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
