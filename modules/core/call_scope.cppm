// SPDX-License-Identifier: Apache-2.0
// call_scope: the limits of the call for which a thread works, where no parameter carries them. The requests of stores
// obey them: a byte_source is read below every format, and knows no options.
export module shardmesh.core:call_scope;

import shardmesh.std;
import :error;
import :pending;
import :result;

// Exported for other rooms; not for users.
export namespace shardmesh::detail {

// The limits of a call, and the time when it began; that time is only set if there is a limit.
struct call_in_progress {
  call_options limits;
  std::chrono::steady_clock::time_point began{};
  std::chrono::steady_clock::time_point outermost_began{};  // of the outermost scope; always set
};

// Returns the call of this thread's innermost scope, or null. It lives as long as that scope.
const call_in_progress* current_call() noexcept;

// Makes a call that of this thread in its lifetime. Helper threads take over the call of the thread that waits for
// them. `call` outlives this object; null: none. Destroyed on the same thread, the innermost first.
class active_call {
 public:
  explicit active_call(const call_in_progress* call) noexcept;
  ~active_call();
  active_call(const active_call&) = delete;
  active_call& operator=(const active_call&) = delete;
  // Returns the call before this object, or null.
  const call_in_progress* outer() const noexcept { return outer_; }

 private:
  const call_in_progress* outer_;
};

// Limits what this thread and the helpers of `parallel_for` do in its lifetime. In nested scopes, the earliest deadline
// counts, with the name and the beginning of its call, and every cancellation. Allocates nothing unless two
// cancellations are joined.
class call_scope {
 public:
  explicit call_scope(const call_options& call);
  const call_options& limits() const noexcept { return call_.limits; }
  // Returns when the outermost scope began: the whole call of the user, of which this one is a part.
  std::chrono::steady_clock::time_point outermost_began() const noexcept { return call_.outermost_began; }
  // Makes the error of a limit that was reached: "the load's deadline has passed after 30 s, while it waited for ...".
  // `waits_for` ends the sentence.
  error limit_error(errc ended, std::string_view waits_for) const;

 private:
  struct stop {
    std::stop_source* source;
    void operator()() const noexcept { source->request_stop(); }
  };
  struct joined_cancellations {
    joined_cancellations(const std::stop_token& one, const std::stop_token& other)
        : first(one, stop{&source}), second(other, stop{&source}) {}
    std::stop_source source;
    std::stop_callback<stop> first, second;
  };

  call_in_progress call_;
  std::optional<joined_cancellations> joined_;
  active_call active_;
};

// A scope for the removal of what a failed call has left. If the limits have been reached, a second remains.
class cleanup_scope {
 public:
  cleanup_scope();

 private:
  call_in_progress call_;
  active_call active_;
};

// Fails if a limit of this thread's scope is reached: errc::cancelled, errc::deadline_exceeded.
result<void> check_current_call();

// Returns whether an error says that a limit was reached, and nothing about a file.
bool is_limit_error(const error& problem) noexcept;

// Waits for this time, or until a limit of this thread's scope is reached.
void wait_within_limits(std::chrono::milliseconds time);

}  // namespace shardmesh::detail
