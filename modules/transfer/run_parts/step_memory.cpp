// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>
module shardmesh.transfer;

import :bound_memory;
import :route;
import :route_cursor;
import :step_memory;

namespace shardmesh {

tensor_view step_memory::staging_of(const task& work, const step& s, const route_cursor& at) const {
  const transfer_types& types = types_of(work.transfer);
  return row_major(staging_ + at.batch().regions[work.staging].offset, at.is_delivering() ? types.from : types.sum,
                   s.where.sizes);
}

// `piece_of` succeeds: the pieces were checked when they were bound.
const_tensor_view step_memory::slot_source(const task& work, const step& s) const {
  if (s.from.side == buffer_side::source)
    return *piece_of(bound_.source(work.transfer, s.from.slot), s.from.offsets, s.where.sizes);
  return *piece_of(bound_.destination(work.transfer, s.from.slot), s.from.offsets, s.where.sizes);
}

tensor_view step_memory::slot_target(const task& work, const step& s) const {
  return *piece_of(bound_.destination(work.transfer, s.to.slot), s.to.offsets, s.where.sizes);
}

const_tensor_view step_memory::source_of(const task& work, const step& s, const route_cursor& at) const {
  if (s.from.side == buffer_side::staging) return staging_of(work, s, at);
  return slot_source(work, s);
}

tensor_view step_memory::target_of(const task& work, const step& s, const route_cursor& at) const {
  return s.to.side == buffer_side::staging ? staging_of(work, s, at) : slot_target(work, s);
}

bool step_memory::is_sent_directly(const message_round& round, const message& m) const {
  if (m.pieces != 1) return false;
  const task& piece = round.outgoing[m.first];
  const step s = step_of(piece);
  const dtype type = type_in_message(piece, s);
  if (s.from.side == buffer_side::staging) return types_of(piece.transfer).from == type;  // sums are rounded first
  const const_tensor_view view = slot_source(piece, s);
  return is_contiguous(view) && view.type == type;
}

bool step_memory::is_received_directly(const message_round& round, const message& m) const {
  if (m.pieces != 1) return false;
  const task& piece = round.late[m.first];
  const step s = step_of(piece);
  if (s.to.side != buffer_side::destination) return false;
  const tensor_view view = slot_target(piece, s);
  return is_contiguous(view) && view.type == type_in_message(piece, s);
}

}  // namespace shardmesh
