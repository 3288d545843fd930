// SPDX-License-Identifier: Apache-2.0
// call_options and pending: how long-running calls are bounded, cancelled and waited for.
export module shardmesh.core:pending;

import shardmesh.std;
import :result;

export namespace shardmesh {

/// A device queue, opaque here: the optional GPU rooms know its type. Null: none, the call is ordered by the host.
struct stream_ref {
  void* handle = nullptr;
  friend bool operator==(const stream_ref&, const stream_ref&) = default;
};

/// What every call that can block takes.
struct call_options {
  std::optional<std::chrono::steady_clock::time_point> deadline{};
  std::stop_token cancel{};
  stream_ref stream{};
  std::uint32_t tag = 0;
  /// What the call is, in errors and traces: a literal. Functions of several ranks name themselves where it is empty,
  /// so that what they call is known as theirs.
  const char* name = "";

  /// These options, of a call of that name unless it has one.
  call_options named(const char* call) const {
    call_options made = *this;
    if (*made.name == '\0') made.name = call;
    return made;
  }
};

/// Work that was started. Move-only. The destructor waits, so buffers given to a call outlive it by scoping alone.
class pending {
 public:
  /// What an implementation provides. `wait` is called at most once.
  struct operation {
    virtual ~operation() = default;
    virtual bool done() = 0;
    virtual result<void> wait() = 0;
  };

  /// Work that is already finished.
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
