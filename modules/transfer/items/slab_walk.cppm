// SPDX-License-Identifier: Apache-2.0
// slab_walk: cuts a box into slabs that are contiguous in row-major order, also within every box that they meet.
export module shardmesh.transfer:slab_walk;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// Slabs of `region`, in row-major order, of at most `max_elements` (at least 1) elements each. A slab fixes the index
/// of the first dimensions, takes a range of one and the whole of the rest: so its intersection with any box is
/// contiguous in that box's row-major order, and successive slabs meet a box front to back.
class slab_walk {
 public:
  slab_walk(const box& region, std::int64_t max_elements);
  /// The next slab; nothing after the last. An empty region has none, a scalar's has one.
  std::optional<box> next();

 private:
  box region_;
  extents at_;             // where the next slab begins, relative to the region
  std::size_t cut_ = 0;    // the dimension that is cut into ranges
  std::int64_t step_ = 1;  // their length
  bool done_ = false;
};

}  // namespace shardmesh
