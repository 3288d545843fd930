// SPDX-License-Identifier: Apache-2.0
// call_limits: when a call must end (cancellation, deadline), and the errors of work that only one rank does. Errors of
// calls between ranks are built in shardmesh.comm (call_guard).
export module shardmesh.core:call_limits;

import shardmesh.std;
import :error;
import :pending;
import :result;
import :time_limit;

// Exported for other rooms; not for users.
export namespace shardmesh::detail {

// Returns the limit that has been reached: errc::cancelled, errc::deadline_exceeded, or errc::ok. A cancellation comes
// first. Reads the clock only if there is a deadline.
errc limit_reached(const std::stop_token& cancel, const time_limit& deadline) noexcept;

// The limits of one started call.
struct call_limits {
  call_limits() = default;
  // The call begins now.
  explicit call_limits(const call_options& call);

  // Returns the limit that has been reached, as `limit_reached` does.
  errc reached() const noexcept { return limit_reached(cancel, deadline); }
  // The same at a given time.
  errc reached(std::chrono::steady_clock::time_point now) const noexcept;

  time_limit deadline{};
  std::chrono::steady_clock::time_point began{};  // set only if there is a deadline, to save other calls the clock
  std::stop_token cancel{};
};

// Makes the error of one rank's work that reached the limit `ended`: "the load was cancelled", "the load's deadline has
// passed". `what` names the work ("load"), and `circumstance` may end the sentence (" while it waited for staging").
error limit_error(errc ended, std::string_view what, std::string_view circumstance = {});

// Fails if work must stop: errc::cancelled, errc::deadline_exceeded. `what` is as for `limit_error`. Allocates nothing
// for work that may continue.
result<void> check_limits(const call_options& call, std::string_view what);

// Formats a length of time: "20 ms", "1.25 s".
std::string duration_text(std::chrono::steady_clock::duration length);

}  // namespace shardmesh::detail
