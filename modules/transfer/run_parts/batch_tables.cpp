// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :batch_tables;
import :bound_memory;
import :launch_slots;
import :route;
import :route_cursor;
import :step_memory;
import :transfer_names;

namespace shardmesh {
namespace {

// Keeps the order of the work on each target: every piece gets a later phase than the piece before.
class turns {
 public:
  std::uint32_t next(const placed_view& target) { return next_[{target.slot, target.offset_bytes}]++; }

 private:
  std::map<std::pair<std::uint32_t, std::int64_t>, std::uint32_t> next_;
};

result<void> append(batch_builder& to, const step& s, const placed_view& target, const placed_view& source,
                    std::uint32_t phase) {
  switch (s.kind) {
    case step_kind::copy:
      return to.copy(target, source, phase);
    case step_kind::accumulate:
      return to.accumulate(target, source, s.reduction, phase);
    case step_kind::fill:
      return to.fill_identity(target, s.reduction, phase);
    case step_kind::divide:
      return to.divide(target, static_cast<double>(s.factor), phase);
    case step_kind::scale:
      break;
  }
  return to.scale(target, static_cast<double>(s.factor), phase);
}

// Rounds sums in a wider type to a narrower one, in place. The elements of a phase have no order, so each phase writes
// only where earlier phases have read. Phases therefore grow by the ratio of the widths.
result<void> append_rounding(batch_builder& to, std::uint32_t target, std::uint32_t source, std::int64_t offset,
                             std::int64_t count, const transfer_types& types, std::uint32_t phase) {
  const std::int64_t wide = item_bytes(types.sum), narrow = item_bytes(types.from), ratio = wide / narrow;
  for (std::int64_t i = 0, end = 1; i < count; i = end, end = end * ratio, ++phase) {
    const extents size{std::min(end, count) - i};
    SHARDMESH_TRY(to.copy(packed_at(target, offset + i * narrow, types.from, size),
                          packed_at(source, offset + i * wide, types.sum, size), phase));
  }
  return {};
}

// Prepares the tables of one batch of the route.
class table_maker {
 public:
  table_maker(const bound_memory& bound, const step_memory& steps, const transfer_names& names, kernel_backend& backend,
              device where)
      : slots_(bound, steps), steps_(steps), names_(names), backend_(backend), where_(where) {}

  result<void> make(const route_cursor& gather, batched_route& made) {
    route_cursor deliver = gather;
    deliver.next_round();
    const std::int64_t staging_bytes = gather.batch().staging_bytes;
    SHARDMESH_TRY(const std::int64_t gathered, make_round(gather, staging_bytes, made.gather));
    SHARDMESH_TRY(const std::int64_t delivered, make_round(deliver, staging_bytes, made.deliver));
    made.scratch_bytes = std::max(gathered, delivered);
    batch_builder middle, finish;
    SHARDMESH_TRY(add_middle(gather, middle));
    SHARDMESH_TRY(add_finish(deliver, finish, made.finish));
    SHARDMESH_TRY(prepare(middle, made.middle));
    return prepare(finish, made.finish);
  }

 private:
  // Returns the bytes of scratch memory: `room`, then the packed messages.
  result<std::int64_t> make_round(const route_cursor& at, std::int64_t room, batched_round& made) {
    const message_round& round = at.round();
    batch_builder before, after;
    for (const message& m : round.sends) {
      made.sent.push_back(take_room(m, steps_.is_sent_directly(round, m), room));
      SHARDMESH_TRY(add_packing(at, m, made.sent.back(), before));
    }
    for (const message& m : round.receives)
      made.received.push_back(take_room(m, steps_.is_received_directly(round, m), room));
    turns order;
    for (const task& work : round.early) SHARDMESH_TRY(add(at, work, made, order, before, made.before));
    for (const task& work : round.late) SHARDMESH_TRY(add(at, work, made, order, after, made.after));
    SHARDMESH_TRY(prepare(before, made.before));
    SHARDMESH_TRY(prepare(after, made.after));
    return room;
  }

  static std::int64_t take_room(const message& m, bool is_straight, std::int64_t& room) {
    if (is_straight) return batched_round::straight;
    return std::exchange(room, room + m.size_bytes);
  }

  result<void> add_packing(const route_cursor& at, const message& m, std::int64_t place, batch_builder& to) {
    if (place == batched_round::straight) return {};
    for (std::size_t i = m.first; i < m.first + m.pieces; ++i) {
      const task& piece = at.round().outgoing[i];
      const step s = steps_.step_of(piece);
      const placed_view target =
          packed_at(slots_.scratch_target(), place + piece.offset, steps_.type_in_message(piece, s), s.where.sizes);
      if (auto added = to.copy(target, slots_.source_of(piece, s, at)); !added)
        return names_.located(std::move(added).error(), piece, s);
    }
    return {};
  }

  // Appends the work of a round, and counts its bytes in `stage`.
  result<void> add(const route_cursor& at, const task& work, const batched_round& round, turns& order,
                   batch_builder& to, batched_stage& stage) {
    const step s = steps_.step_of(work);
    if (s.kind == step_kind::copy || s.kind == step_kind::accumulate)
      stage.copied_bytes += steps_.bytes_in_message(work, s);
    const bool arrives = work.message != no_message;
    if (arrives && round.received[work.message] == batched_round::straight) return {};
    const placed_view target = slots_.target_of(work, s, at);
    const placed_view source = arrives ? packed_at(slots_.scratch_source(), round.received[work.message] + work.offset,
                                                   steps_.type_in_message(work, s), s.where.sizes)
                                       : slots_.source_of(work, s, at);
    const bool is_alone = s.kind == step_kind::copy && s.to.side == buffer_side::destination;
    if (auto added = append(to, s, target, source, is_alone ? 0 : order.next(target)); !added)
      return names_.located(std::move(added).error(), work, s);
    return {};
  }

  // Appends the work on sums, then their rounding.
  result<void> add_middle(const route_cursor& at, batch_builder& to) {
    turns order;
    std::uint32_t last = 0;
    for (const task& work : at.batch().middle) {
      const step s = steps_.step_of(work);
      const placed_view target = slots_.target_of(work, s, at);
      const std::uint32_t phase = order.next(target);
      last = std::max(last, phase + 1);
      if (auto added = append(to, s, target, slots_.source_of(work, s, at), phase); !added)
        return names_.located(std::move(added).error(), work, s);
    }
    for (const staging_region& region : at.batch().regions) {
      const transfer_types& types = steps_.types_of(region.transfer);
      if (types.sum != types.from)
        SHARDMESH_TRY(append_rounding(to, slots_.scratch_target(), slots_.scratch_source(), region.offset,
                                      region.volume, types, last));
    }
    return {};
  }

  // Appends the copies between slots, then the work on their targets.
  result<void> add_finish(const route_cursor& at, batch_builder& to, batched_stage& stage) {
    turns order;
    for (const task& work : at.batch().finish) {
      const step s = steps_.step_of(work);
      const placed_view target = slots_.target_of(work, s, at);
      const std::uint32_t phase = s.phase == step_phase::repeat ? 0 : 1 + order.next(target);
      if (s.kind == step_kind::copy) stage.copied_bytes += steps_.bytes_in_message(work, s);
      if (auto added = append(to, s, target, slots_.source_of(work, s, at), phase); !added)
        return names_.located(std::move(added).error(), work, s);
    }
    return {};
  }

  result<void> prepare(const batch_builder& items, batched_stage& stage) {
    if (items.empty()) return {};
    SHARDMESH_TRY(stage.batch, backend_.prepare(items.items(), where_));
    return {};
  }

  launch_slots slots_;
  const step_memory& steps_;
  const transfer_names& names_;
  kernel_backend& backend_;
  device where_;
};

}  // namespace

batch_tables::batch_tables(const route& r, const bound_memory& bound, const step_memory& steps,
                           const transfer_names& names)
    : route_(r), bound_(bound), steps_(steps), names_(names) {}

result<void> batch_tables::prepare(kernel_backend& backend, device where) {
  if (shapes_ == bound_.shapes()) return {};
  shapes_ = -1;
  routes_.clear();
  routes_.resize(route_.batches.size());
  table_maker maker(bound_, steps_, names_, backend, where);
  for (std::size_t i = 0; i < routes_.size(); ++i) SHARDMESH_TRY(maker.make(route_cursor(route_, i), routes_[i]));
  shapes_ = bound_.shapes();
  return {};
}

std::int64_t batch_tables::scratch_bytes() const {
  std::int64_t most = 0;
  for (const batched_route& one : routes_) most = std::max(most, one.scratch_bytes);
  return most;
}

}  // namespace shardmesh
