// SPDX-License-Identifier: Apache-2.0
// The slots of a backend's launch. The targets are the destinations, then the scratch memory. The sources are the run's
// sources, its destinations, then the scratch memory. Exports nothing.
module shardmesh.transfer:launch_slots;

import shardmesh.std;
import shardmesh.core;
import shardmesh.kernels;
import :bound_memory;
import :route;
import :route_cursor;
import :step;
import :step_memory;

namespace shardmesh {

// A row-major piece of a slot.
inline placed_view packed_at(std::uint32_t slot, std::int64_t offset_bytes, dtype type, const extents& sizes) {
  return {slot, offset_bytes, type, sizes, contiguous_strides(sizes)};
}

class launch_slots {
 public:
  // Both must outlive this object.
  inline launch_slots(const bound_memory& bound, const step_memory& steps) : bound_(bound), steps_(steps) {}

  // The scratch memory as a target and as a source.
  inline std::uint32_t scratch_target() const { return static_cast<std::uint32_t>(bound_.destinations().size()); }
  inline std::uint32_t scratch_source() const {
    return static_cast<std::uint32_t>(bound_.sources().size()) + scratch_target();
  }

  // Precondition: `s` is the step of `work`, which belongs to the batch at `at`.
  placed_view target_of(const task& work, const step& s, const route_cursor& at) const;
  placed_view source_of(const task& work, const step& s, const route_cursor& at) const;

 private:
  placed_view in_staging(std::uint32_t slot, const task& work, const step& s, const route_cursor& at) const;
  placed_view in_destination(std::size_t first_slot, const task& work, const step_end& end, const box& where) const;

  const bound_memory& bound_;
  const step_memory& steps_;
};

}  // namespace shardmesh
