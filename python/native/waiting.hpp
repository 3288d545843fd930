// SPDX-License-Identifier: Apache-2.0
// Long work without the interpreter's lock. It runs in its own thread, while the calling thread lets Python handle
// signals (Ctrl-C) and reports progress.
#pragma once
#include <pybind11/pybind11.h>

#include <concepts>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "watch.hpp"

import shardmesh;

namespace bindings {

/// The time limit of a call: None, or its end as Python's time.monotonic counts.
shardmesh::time_limit to_limit(const pybind11::handle& end);

/// Runs `work` and waits for it, without the interpreter's lock. `report` (None, or a callable) receives the bytes so
/// far: regularly, before a destination is put in place, and at the end, never the same number twice. An exception of a
/// signal handler or of `report` asks the work to stop; it is raised when the work has stopped.
void wait_for(const std::function<void(watch&)>& work, const pybind11::object& report);

/// The same for work that returns a value.
template <std::invocable<watch&> Work>
std::invoke_result_t<Work, watch&> waited(const pybind11::object& report, Work&& work) {
  std::optional<std::invoke_result_t<Work, watch&>> made;
  wait_for([&](watch& watching) { made.emplace(work(watching)); }, report);
  return *std::move(made);
}

}  // namespace bindings
