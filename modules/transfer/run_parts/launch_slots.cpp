// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>
module shardmesh.transfer;

import :bound_memory;
import :launch_slots;
import :route;
import :route_cursor;
import :step_memory;

namespace shardmesh {

placed_view launch_slots::in_staging(std::uint32_t slot, const task& work, const step& s,
                                     const route_cursor& at) const {
  const transfer_types& types = steps_.types_of(work.transfer);
  return packed_at(slot, at.batch().regions[work.staging].offset, at.is_delivering() ? types.from : types.sum,
                   s.where.sizes);
}

// `first_slot` is the slot of the first destination.
placed_view launch_slots::in_destination(std::size_t first_slot, const task& work, const step_end& end,
                                         const box& where) const {
  const tensor_view& slot = bound_.destination(work.transfer, end.slot);
  const std::size_t number = first_slot + bound_.destination_index(work.transfer, end.slot);
  return place(static_cast<std::uint32_t>(number), slot.data, *piece_of(slot, end.offsets, where.sizes));
}

placed_view launch_slots::target_of(const task& work, const step& s, const route_cursor& at) const {
  if (s.to.side == buffer_side::staging) return in_staging(scratch_target(), work, s, at);
  return in_destination(0, work, s.to, s.where);
}

placed_view launch_slots::source_of(const task& work, const step& s, const route_cursor& at) const {
  if (s.from.side == buffer_side::staging) return in_staging(scratch_source(), work, s, at);
  if (s.from.side == buffer_side::destination) return in_destination(bound_.sources().size(), work, s.from, s.where);
  const const_tensor_view& slot = bound_.source(work.transfer, s.from.slot);
  const std::size_t number = bound_.source_index(work.transfer, s.from.slot);
  return place(static_cast<std::uint32_t>(number), slot.data, *piece_of(slot, s.from.offsets, s.where.sizes));
}

}  // namespace shardmesh
