// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <string_view>
#include <utility>
module shardmesh.core;

namespace shardmesh::detail {
namespace {

using clock = std::chrono::steady_clock;

constexpr std::chrono::seconds cleanup_time{1};

// A raw pointer: a thread-local object with a destructor would allocate memory in each thread.
thread_local const call_in_progress* current = nullptr;

const char* name_of(const call_options& limits) {
  return *limits.name == '\0' ? "call" : limits.name;
}

}  // namespace

const call_in_progress* current_call() noexcept {
  return current;
}

active_call::active_call(const call_in_progress* call) noexcept : outer_(std::exchange(current, call)) {}
active_call::~active_call() {
  current = outer_;
}

call_scope::call_scope(const call_options& call) : call_{call}, active_(&call_) {
  call_options& own = call_.limits;
  const bool is_limited = own.within || own.cancel.stop_possible();
  if (is_limited) call_.began = clock::now();
  call_.outermost_began = active_.outer() == nullptr ? clock::now() : active_.outer()->outermost_began;
  if (active_.outer() == nullptr) return;
  const call_options& outer = active_.outer()->limits;
  const bool is_outer_first = outer.within && (!own.within || *outer.within <= *own.within);
  if (is_outer_first) own.within = outer.within;
  if (is_outer_first || (!own.within && *own.name == '\0')) {
    own.name = outer.name;
    call_.began = active_.outer()->began;
  } else if (!is_limited) {
    call_.began = active_.outer()->began;
  }
  if (!outer.cancel.stop_possible() || outer.cancel == own.cancel) return;
  if (own.cancel.stop_possible()) {
    joined_.emplace(outer.cancel, call.cancel);
    own.cancel = joined_->source.get_token();
  } else {
    own.cancel = outer.cancel;
  }
}

error call_scope::limit_error(errc ended, std::string_view waits_for) const {
  return detail::limit_error(
      ended, name_of(call_.limits),
      fmt::format(" after {}, while it waited for {}", duration_text(clock::now() - call_.began), waits_for));
}

cleanup_scope::cleanup_scope() : active_(&call_) {
  if (active_.outer() == nullptr) return;
  call_ = *active_.outer();
  const clock::time_point soon = clock::now() + cleanup_time;
  if (call_.limits.cancel.stop_requested()) {
    call_.limits.cancel = {};
    call_.limits.within = soon;
  } else if (call_.limits.within) {
    call_.limits.within = std::max(*call_.limits.within, soon);
  }
}

result<void> check_current_call() {
  if (current == nullptr) return {};
  const errc ended = limit_reached(current->limits.cancel, current->limits.within);
  if (ended == errc::ok) return {};
  return detail::limit_error(ended, name_of(current->limits),
                             fmt::format(" after {}", duration_text(clock::now() - current->began)));
}

bool is_limit_error(const error& problem) noexcept {
  return problem.code == errc::cancelled || problem.code == errc::deadline_exceeded;
}

void wait_within_limits(std::chrono::milliseconds time) {
  const call_options limits = current != nullptr ? current->limits : call_options{};
  clock::time_point until = clock::now() + time;
  if (limits.within) until = std::min(until, *limits.within);
  std::mutex lock;
  std::condition_variable_any never;
  std::unique_lock guard(lock);
  never.wait_until(guard, limits.cancel, until, [] { return false; });
}

}  // namespace shardmesh::detail
