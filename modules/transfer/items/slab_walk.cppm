// SPDX-License-Identifier: Apache-2.0
// Cuts a box into slabs that are contiguous in row-major order, even within every box that they intersect.
export module shardmesh.transfer:slab_walk;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// The slabs of `region`, in row-major order, of at most `max_elements` (at least 1) elements each. A slab fixes the
/// indices of the leading dimensions, takes a range of one dimension, and takes all of the others. Its intersection
/// with any box is therefore contiguous in that box's row-major order, and successive slabs cover a box front to back.
class slab_walk {
 public:
  slab_walk(const box& region, std::int64_t max_elements);
  /// Returns the next slab, or nothing after the last one. An empty region has no slab; a scalar has one.
  std::optional<box> next();

 private:
  box region_;
  extents at_;             // start of the next slab, relative to the region
  std::size_t cut_ = 0;    // the dimension that is cut into ranges
  std::int64_t step_ = 1;  // length of the ranges
  bool done_ = false;
};

}  // namespace shardmesh
