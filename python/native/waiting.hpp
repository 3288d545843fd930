// SPDX-License-Identifier: Apache-2.0
// Long work without the interpreter's lock: it goes on in a thread of its own, while the calling thread lets Python
// handle signals (Ctrl-C) and tells how far it is.
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

/// Runs `work` and waits for it, without the interpreter's lock. `report` (None, or a callable) gets the bytes so far
/// now and then, before a destination is put in place and at the end, not twice the same. A signal's exception, or one
/// of `report`, asks the work to stop, waits until it has, and is raised.
void wait_for(const std::function<void(watch&)>& work, const pybind11::object& report);

/// The same for work that makes something.
template <std::invocable<watch&> Work>
std::invoke_result_t<Work, watch&> waited(const pybind11::object& report, Work&& work) {
  std::optional<std::invoke_result_t<Work, watch&>> made;
  wait_for([&](watch& watching) { made.emplace(work(watching)); }, report);
  return *std::move(made);
}

}  // namespace bindings
