// SPDX-License-Identifier: Apache-2.0
#include "waiting.hpp"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

import shardmesh;

namespace bindings {
namespace py = pybind11;

namespace {

// Between two looks at Python: short enough for a person who presses Ctrl-C.
constexpr std::chrono::milliseconds pause{50};

// What Python has to say: a signal's exception, or that of the caller's own function.
std::exception_ptr ask_python(const py::object& report, std::int64_t bytes) {
  const py::gil_scoped_acquire held;
  try {
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (!report.is_none()) report(bytes);
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

void wait_for(const std::function<void(watch&)>& work, const py::object& report) {
  watch watching;
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
  std::exception_ptr thrown, interruption;
  {
    const py::gil_scoped_release released;
    std::thread worker([&] {
      try {
        work(watching);
      } catch (...) {
        thrown = std::current_exception();
      }
      const std::lock_guard lock(mutex);
      is_done = true;
      changed.notify_one();
    });
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, pause, [&] { return is_done; })) {
      if (interruption) continue;
      lock.unlock();
      interruption = ask_python(report, watching.bytes);
      if (interruption) watching.stop.request_stop();
      lock.lock();
    }
    lock.unlock();
    worker.join();
    if (!interruption) interruption = ask_python(report, watching.bytes);
  }
  if (interruption) std::rethrow_exception(interruption);
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace bindings
