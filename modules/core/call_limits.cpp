// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <chrono>
#include <stop_token>
#include <string>
#include <string_view>
module shardmesh.core;

namespace shardmesh::detail {
namespace {

using clock = std::chrono::steady_clock;

}  // namespace

errc limit_reached(const std::stop_token& cancel, const time_limit& deadline) noexcept {
  if (cancel.stop_requested()) return errc::cancelled;
  if (deadline && clock::now() >= *deadline) return errc::deadline_exceeded;
  return errc::ok;
}

call_limits::call_limits(const call_options& call) : deadline(call.within), cancel(call.cancel) {
  if (deadline) began = clock::now();
}

errc call_limits::reached(clock::time_point now) const noexcept {
  if (cancel.stop_requested()) return errc::cancelled;
  if (deadline && now >= *deadline) return errc::deadline_exceeded;
  return errc::ok;
}

error limit_error(errc ended, std::string_view what, std::string_view circumstance) {
  return fail(ended, ended == errc::cancelled ? fmt::format("the {} was cancelled{}", what, circumstance)
                                              : fmt::format("the {}'s deadline has passed{}", what, circumstance));
}

result<void> check_limits(const call_options& call, std::string_view what) {
  if (const errc ended = limit_reached(call.cancel, call.within); ended != errc::ok) return limit_error(ended, what);
  return {};
}

std::string duration_text(clock::duration length) {
  const double seconds = std::chrono::duration<double>(length).count();
  return seconds < 1 ? fmt::format("{:.3g} ms", seconds * 1000) : fmt::format("{:.3g} s", seconds);
}

}  // namespace shardmesh::detail
