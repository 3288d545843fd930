// SPDX-License-Identifier: Apache-2.0
// call_options and pending: time limits, cancellation, and completion of long-running calls.
export module shardmesh.core:pending;

import shardmesh.std;
import :result;
import :time_limit;

export namespace shardmesh {

/// A device queue. The type of `handle` is known only to the optional GPU rooms. Null means no queue: the host orders
/// the call.
struct stream_ref {
  void* handle = nullptr;
  friend bool operator==(const stream_ref&, const stream_ref&) = default;
};

/// The options of every call that can block.
struct call_options {
  /// A duration, which counts from the moment it is given, or a time point (errc::deadline_exceeded).
  time_limit within{};
  std::stop_token cancel{};
  stream_ref stream{};
  std::uint32_t tag = 0;
  /// The call's name in errors and traces; a string literal. When it is empty, functions that involve several ranks set
  /// their own name, so that the calls they make report it.
  const char* name = "";

  /// Returns these options with the name `call`, unless they already have a name.
  call_options named(const char* call) const {
    call_options made = *this;
    if (*made.name == '\0') made.name = call;
    return made;
  }
};

/// Work that has been started. Move-only. The destructor waits for the work, so buffers declared before it outlive the
/// work.
class pending {
 public:
  /// The interface that an implementation provides. `wait` is called at most once.
  struct operation {
    virtual ~operation() = default;
    virtual bool done() = 0;
    virtual result<void> wait() = 0;
  };

  /// Constructs finished work.
  pending() = default;
  explicit pending(std::unique_ptr<operation> work) : work_(std::move(work)) {}
  pending(pending&&) noexcept = default;
  pending& operator=(pending&& other) noexcept {
    if (this != &other) {
      finish();
      work_ = std::move(other.work_);
    }
    return *this;
  }
  ~pending() { finish(); }

  bool done() const { return !work_ || work_->done(); }
  result<void> wait() {
    const auto work = std::exchange(work_, nullptr);
    return work ? work->wait() : result<void>{};
  }

 private:
  void finish() {
    if (work_) static_cast<void>(wait());
  }
  std::unique_ptr<operation> work_;
};

}  // namespace shardmesh
