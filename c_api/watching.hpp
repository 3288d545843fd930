// SPDX-License-Identifier: Apache-2.0
// Long work, run as the caller wants it watched: directly, or in its own thread while this one reports progress.
#pragma once
#include <shardmesh/c_api/call.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>

#include "../bindings/watch.hpp"

import shardmesh;

namespace c_api {

/// Runs `work`: on this thread if `call` is null or has neither progress nor timeout. Rethrows its exceptions. A
/// `cancelled` error of work that was asked to stop becomes deadline_exceeded if the time had run out.
void run_watched(const shardmesh_call* call, const std::function<void(bindings::watch&)>& work);

/// The limit after that many milliseconds; none for 0, and for more than a year. \throws invalid_argument
shardmesh::time_limit deadline_after(std::int64_t timeout_milliseconds);

/// Whether a call is watched, so that a reader that counts is worth its cost.
bool is_watched(const shardmesh_call* call);

/// Throws errc::cancelled once a stop was requested, for work that would end early with a partial result.
void check_stopped(const bindings::watch& watching);

template <class Work>
std::invoke_result_t<Work, bindings::watch&> watched_result(const shardmesh_call* call, Work&& work) {
  std::optional<std::invoke_result_t<Work, bindings::watch&>> made;
  run_watched(call, [&](bindings::watch& watching) { made.emplace(work(watching)); });
  return *std::move(made);
}

}  // namespace c_api
