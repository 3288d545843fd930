// SPDX-License-Identifier: Apache-2.0
// Long work as the caller wants it watched: directly, or in a thread of its own while this one tells how far it is.
#pragma once
#include <shardmesh/c_api/call.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>

#include "../bindings/watch.hpp"

namespace c_api {

/// Runs `work`. Null, or a call with neither progress nor timeout: on this thread. What it throws is thrown again; once
/// it was asked to stop and reports `cancelled`, that becomes deadline_exceeded where the time was over.
void run_watched(const shardmesh_call* call, const std::function<void(bindings::watch&)>& work);

/// When so many milliseconds are over; nothing for 0, and for more than a year. \throws invalid_argument
std::optional<std::chrono::steady_clock::time_point> deadline_after(std::int64_t timeout_milliseconds);

/// Whether a watched call is worth a reader that counts.
bool is_watched(const shardmesh_call* call);

/// Refuses with errc::cancelled, for work that ends early with part of an answer.
void check_stopped(const bindings::watch& watching);

template <class Work>
std::invoke_result_t<Work, bindings::watch&> watched_result(const shardmesh_call* call, Work&& work) {
  std::optional<std::invoke_result_t<Work, bindings::watch&>> made;
  run_watched(call, [&](bindings::watch& watching) { made.emplace(work(watching)); });
  return *std::move(made);
}

}  // namespace c_api
