// SPDX-License-Identifier: Apache-2.0
#include "waiting.hpp"

#include <chrono>
#include <cstdint>
#include <exception>

#include "interpreter.hpp"

import shardmesh;

namespace bindings {
namespace py = pybind11;
using shardmesh::time_limit;

namespace {

// Asks Python for an exception: of a signal handler, or of the caller's `report`.
std::exception_ptr ask_python(const py::object& report, std::int64_t bytes, std::int64_t& told) {
  const acquired held;
  try {
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    told = bytes;
    if (!report.is_none()) report(bytes);
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

// Both clocks are CLOCK_MONOTONIC. The difference may be infinite, which means no limit.
time_limit to_limit(const py::handle& end) {
  using seconds = std::chrono::duration<double>;
  if (end.is_none()) return {};
  return seconds(end.cast<double>()) - seconds(std::chrono::steady_clock::now().time_since_epoch());
}

void wait_for(const std::function<void(watch&)>& work, const py::object& report) {
  watch watching;
  std::exception_ptr thrown, interruption;
  std::int64_t told = -1;
  {
    const released unlocked([&watching] { watching.stop.request_stop(); });
    const auto look = [&] {
      if (interruption || is_overtaken()) return;
      interruption = ask_python(report, watching.bytes, told);
      if (interruption) watching.stop.request_stop();
    };
    thrown = watching.run(work, look, in_a_moment);
    if (!interruption && !is_overtaken() && told != watching.bytes)
      interruption = ask_python(report, watching.bytes, told);
  }
  if (interruption) std::rethrow_exception(interruption);
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace bindings
