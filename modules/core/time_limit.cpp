// SPDX-License-Identifier: Apache-2.0
module;
#include <chrono>
module shardmesh.core;

namespace shardmesh {

time_limit::time_point time_limit::end_after(ticks length) noexcept {
  const time_point now = std::chrono::steady_clock::now();
  if (length <= ticks::zero()) return now;
  // In this form, the comparison also treats NaN as too long, so that it means no limit.
  if (!(length < ticks(time_point::max() - now))) return time_point::max();
  return now + time_point::duration(static_cast<time_point::rep>(length.count()));
}

}  // namespace shardmesh
