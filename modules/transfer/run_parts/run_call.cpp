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
  const errc ended = detail::limit_reached(options_.cancel, options_.deadline);
  if (ended == errc::ok) return {};
  return detail::ended_within({rank_, options_.name, {}, options_.tag}, ended);
}

result<void> run_call::check_late(std::chrono::milliseconds grace) const {
  const bool is_late = !options_.deadline || std::chrono::steady_clock::now() > *options_.deadline + grace;
  return is_late ? check() : result<void>();
}

}  // namespace shardmesh
