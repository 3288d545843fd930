// SPDX-License-Identifier: Apache-2.0
module;
#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
module shardmesh.transfer;

import :run_call;

namespace shardmesh {

call_options run_call::on_stream() const {
  call_options made = options_;
  if (stream_) made.stream = *stream_;
  return made;
}

result<void> run_call::check() const {
  const errc ended = detail::limit_reached(options_.cancel, options_.within);
  if (ended == errc::ok) return {};
  return detail::ended_within({rank_, options_.name, {}, options_.tag}, ended);
}

result<void> run_call::check_late(std::chrono::milliseconds grace) const {
  // The subtraction does not overflow; a limit may be the clock's last time.
  const bool is_late = !options_.within || std::chrono::steady_clock::now() - grace > *options_.within;
  return is_late ? check() : result<void>();
}

}  // namespace shardmesh
