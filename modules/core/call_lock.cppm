// SPDX-License-Identifier: Apache-2.0
// call_lock: a lock that a thread may hold while it waits for a server.
export module shardmesh.core:call_lock;

import shardmesh.std;
import :result;

// Exported for other rooms; not for users.
export namespace shardmesh::detail {

// Of two calls that share it, one may have a deadline, and the other none. A wait for the lock ends at the limits of
// the waiting thread's `call_scope`.
class call_lock {
 public:
  // Holds the lock in its lifetime.
  class guard {
   public:
    explicit guard(call_lock& held) noexcept : held_(&held) {}
    guard(guard&& other) noexcept : held_(std::exchange(other.held_, nullptr)) {}
    guard& operator=(guard&&) = delete;
    ~guard() {
      if (held_ != nullptr) held_->release();
    }

   private:
    call_lock* held_;
  };

  // \errors errc::cancelled, errc::deadline_exceeded
  result<guard> acquire();

 private:
  void release() noexcept;
  std::mutex lock_;
  std::condition_variable changed_;
  bool is_held_ = false;
};

}  // namespace shardmesh::detail
