// SPDX-License-Identifier: Apache-2.0
// The interpreter's lock, in a program that may end at any time. pybind11's own guards end a daemon thread by unwinding
// through destructors and `catch (...)`, which aborts the process. The guards here stop such a thread for ever instead,
// as Python 3.14 does. At its end, the program cancels running work and waits for it.
#pragma once
#include <pybind11/pybind11.h>

#include <cstdint>
#include <functional>

namespace bindings {

/// Releases the interpreter's lock for its lifetime. `cancel` must not throw; a program that ends calls it from its
/// main thread.
class released {
 public:
  explicit released(std::function<void()> cancel = {});
  released(const released&) = delete;
  released& operator=(const released&) = delete;
  /// Takes the lock again. Does not return if the program has begun to end meanwhile and overtaken this thread.
  ~released();

 private:
  struct running* call_;
  struct running* outer_;  // the call around the callback that made this one
  PyThreadState* state_ = nullptr;
};

/// Holds the lock, in any thread. Does not return once the interpreter is shutting down.
class acquired {
 public:
  acquired();
  acquired(const acquired&) = delete;
  acquired& operator=(const acquired&) = delete;
  ~acquired();

 private:
  PyGILState_STATE state_;
};

/// A call into another library, such as PyTorch, that releases the lock and takes it again. Taking the lock too late
/// aborts the process, so a program that ends waits for these calls and lets no more of them start. Call `begin` and
/// `end` with the lock held. They do not return in a thread that the end of the program has overtaken.
class foreign_call {
 public:
  void begin();
  void end();

 private:
  struct running* call_ = nullptr;
};

/// Whether the program is ending while this thread is within a `released`. No Python code may then run here.
bool is_overtaken();

/// Cancels work in other threads of this process, and waits for it for a bounded time. Python's atexit calls it when
/// only daemon threads are left.
void end_running_work();

}  // namespace bindings
