// SPDX-License-Identifier: Apache-2.0
module;
#include <chrono>
#include <condition_variable>
#include <mutex>
module shardmesh.core;

namespace shardmesh::detail {

result<call_lock::guard> call_lock::acquire() {
  constexpr std::chrono::milliseconds look_again{20};  // for a cancellation, which does not wake the thread
  const call_in_progress* const call = current_call();
  std::unique_lock locked(lock_);
  while (is_held_) {
    if (call == nullptr) {
      changed_.wait(locked);
      continue;
    }
    const call_options& limits = call->limits;
    if (const errc ended = limit_reached(limits.cancel, limits.within); ended != errc::ok)
      return limit_error(ended, *limits.name == '\0' ? "call" : limits.name,
                         " while it waited for a request of another call");
    changed_.wait_for(locked, look_again);
  }
  is_held_ = true;
  return guard(*this);
}

void call_lock::release() noexcept {
  const std::scoped_lock locked(lock_);
  is_held_ = false;
  changed_.notify_one();
}

}  // namespace shardmesh::detail
