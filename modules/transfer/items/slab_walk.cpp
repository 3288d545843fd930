// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstdint>
#include <optional>
module shardmesh.transfer;

namespace shardmesh {

slab_walk::slab_walk(const box& region, std::int64_t max_elements)
    : region_(region), at_(extents::filled(region.rank(), 0)), done_(region.is_empty()) {
  if (region.rank() == 0 || done_) return;
  const std::int64_t most = std::max<std::int64_t>(max_elements, 1);
  std::int64_t inner = 1;  // elements of one index of the dimension that is cut
  cut_ = region.rank() - 1;
  while (cut_ > 0 && inner * region.sizes[cut_] <= most) inner *= region.sizes[cut_--];
  step_ = std::clamp<std::int64_t>(most / inner, 1, region.sizes[cut_]);
}

std::optional<box> slab_walk::next() {
  if (done_) return std::nullopt;
  box slab = region_;
  if (region_.rank() == 0) return done_ = true, slab;
  for (std::size_t d = 0; d <= cut_; ++d) {
    slab.offsets[d] += at_[d];
    slab.sizes[d] = d == cut_ ? std::min(step_, region_.sizes[d] - at_[d]) : 1;
  }
  // Advance like an odometer, the cut dimension first.
  for (std::size_t d = cut_ + 1; d-- > 0;) {
    at_[d] += d == cut_ ? step_ : 1;
    if (at_[d] < region_.sizes[d]) return slab;
    at_[d] = 0;
  }
  done_ = true;
  return slab;
}

}  // namespace shardmesh
