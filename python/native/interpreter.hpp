// SPDX-License-Identifier: Apache-2.0
// The interpreter's lock, in a program that may end at any time. pybind11's own guards end a daemon thread by unwinding
// through destructors and `catch (...)`, which aborts the process. These stop such a thread for ever instead, as Python
// 3.14 does, and let the end of the program cancel and await work that is under way.
#pragma once
#include <pybind11/pybind11.h>

#include <cstdint>
#include <functional>

namespace bindings {

/// Without the interpreter's lock. `cancel`: called by the ending program, from its main thread; it must not throw.
class released {
 public:
  explicit released(std::function<void()> cancel = {});
  released(const released&) = delete;
  released& operator=(const released&) = delete;
  /// Takes the lock again. Does not return in a thread that the end of the program has overtaken.
  ~released();

 private:
  struct running* call_;
  struct running* outer_;  // of a callback that made this call
  PyThreadState* state_ = nullptr;
};

/// With the lock, in any thread. Does not return once the interpreter is being taken down.
class acquired {
 public:
  acquired();
  acquired(const acquired&) = delete;
  acquired& operator=(const acquired&) = delete;
  ~acquired();

 private:
  PyGILState_STATE state_;
};

/// A call into another library that lets go of the lock by itself and takes it again, such as one of PyTorch's. Taken
/// too late, that aborts the process, so the end of the program waits for these calls and starts no more of them. With
/// the lock held; `begin` and `end` do not return in a thread that the end of the program has overtaken.
class foreign_call {
 public:
  void begin();
  void end();

 private:
  struct running* call_ = nullptr;
};

/// Whether the program ends while this thread is within a `released`. No Python code may run here then.
bool is_overtaken();

/// Cancels what runs in other threads of this process and waits for it, for a bounded time. Called by Python's atexit,
/// when only daemon threads are left.
void end_running_work();

}  // namespace bindings
