// SPDX-License-Identifier: Apache-2.0
// The work of a run on a backend: the pieces of its route as batches, launched between the rounds of messages.
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :batched_work;
import :bound_memory;
import :rank_plan;
import :route;
import :run;

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

placed_view row_major(std::uint32_t slot, std::int64_t offset, dtype type, const extents& sizes) {
  return {slot, offset, type, sizes, contiguous_strides(sizes)};
}

// Rounds sums in a wider type to a narrower one, in place. The elements of a phase have no order, so each phase writes
// only where earlier phases have read. Phases therefore grow by the ratio of the widths.
result<void> append_rounding(batch_builder& to, std::uint32_t target, std::uint32_t source, std::int64_t offset,
                             std::int64_t count, const transfer_types& types, std::uint32_t phase) {
  const std::int64_t wide = item_bytes(types.sum), narrow = item_bytes(types.from), ratio = wide / narrow;
  for (std::int64_t i = 0, end = 1; i < count; i = end, end = end * ratio, ++phase) {
    const extents size{std::min(end, count) - i};
    SHARDMESH_TRY(to.copy(row_major(target, offset + i * narrow, types.from, size),
                          row_major(source, offset + i * wide, types.sum, size), phase));
  }
  return {};
}

}  // namespace

// Numbers the slots of a launch. Target slots are the destinations, then the scratch memory. Source slots are the run's
// sources, then its destinations, then the scratch memory.
placed_view executor::state::placed(const task& work, const step& s, bool is_target, bool rounded) const {
  const step_end& end = is_target ? s.to : s.from;
  const std::size_t sources = is_target ? 0 : memory_.sources().size();
  const auto scratch_slot = static_cast<std::uint32_t>(sources + memory_.destinations().size());
  if (end.side == buffer_side::staging) {
    const batch_route& batch = route_.batches[batch_];
    const transfer_types& types = route_.types[work.transfer];
    return row_major(scratch_slot, batch.regions[work.staging].offset, rounded ? types.from : types.sum, s.where.sizes);
  }
  if (end.side == buffer_side::source) {
    const const_tensor_view& slot = memory_.source(work.transfer, end.slot);
    return place(static_cast<std::uint32_t>(memory_.source_index(work.transfer, end.slot)), slot.data,
                 *piece_of(slot, end.offsets, s.where.sizes));
  }
  const tensor_view& slot = memory_.destination(work.transfer, end.slot);
  return place(static_cast<std::uint32_t>(sources + memory_.destination_index(work.transfer, end.slot)), slot.data,
               *piece_of(slot, end.offsets, s.where.sizes));
}

// `room` is the scratch offset of the next message.
result<void> executor::state::prepare_round(const message_round& round, bool rounded, batched_round& made,
                                            std::int64_t& room) {
  const auto scratch_target = static_cast<std::uint32_t>(memory_.destinations().size());
  const auto scratch_source = static_cast<std::uint32_t>(memory_.sources().size()) + scratch_target;
  const auto take = [&](const message& m, bool is_straight) {
    if (is_straight) return batched_round::straight;
    const std::int64_t place = room;
    room += m.size_bytes;
    return place;
  };
  batch_builder before, after;
  for (const message& m : round.sends) {
    const std::int64_t place = made.sent.emplace_back(take(m, is_sent_directly(round, m)));
    if (place == batched_round::straight) continue;
    for (std::size_t i = m.first; i < m.first + m.pieces; ++i) {
      const task& piece = round.outgoing[i];
      const step s = step_of(piece);
      const dtype type = route_.types[piece.transfer].in_message(s);
      if (auto added = before.copy(row_major(scratch_target, place + piece.offset, type, s.where.sizes),
                                   placed(piece, s, false, rounded));
          !added)
        return at(std::move(added).error(), piece, s);
    }
  }
  for (const message& m : round.receives) made.received.push_back(take(m, is_received_directly(round, m)));

  turns order;
  const auto add = [&](batch_builder& to, batched_stage& stage, const task& work) -> result<void> {
    const step s = step_of(work);
    const dtype type = route_.types[work.transfer].in_message(s);
    if (s.kind == step_kind::copy || s.kind == step_kind::accumulate) stage.copied_bytes += bytes_of(s.where, type);
    const bool arrives = work.message != no_message;
    if (arrives && made.received[work.message] == batched_round::straight) return {};
    const placed_view target = placed(work, s, true, rounded);
    const placed_view source =
        arrives ? row_major(scratch_source, made.received[work.message] + work.offset, type, s.where.sizes)
                : placed(work, s, false, rounded);
    const bool is_alone = s.kind == step_kind::copy && s.to.side == buffer_side::destination;
    if (auto added = append(to, s, target, source, is_alone ? 0 : order.next(target)); !added)
      return at(std::move(added).error(), work, s);
    return {};
  };
  for (const task& work : round.early) SHARDMESH_TRY(add(before, made.before, work));
  for (const task& work : round.late) SHARDMESH_TRY(add(after, made.after, work));
  if (!before.empty()) {
    SHARDMESH_TRY(made.before.batch, batched_->backend->prepare(before.items(), batched_->memory));
  }
  if (!after.empty()) {
    SHARDMESH_TRY(made.after.batch, batched_->backend->prepare(after.items(), batched_->memory));
  }
  return {};
}

// Prepares the tables of the current batch.
result<void> executor::state::prepare_route(batched_route& made) {
  const batch_route& batch = route_.batches[batch_];
  std::int64_t gathered = batch.staging_bytes, delivered = batch.staging_bytes;
  SHARDMESH_TRY(prepare_round(batch.gather, false, made.gather, gathered));
  SHARDMESH_TRY(prepare_round(batch.deliver, true, made.deliver, delivered));
  made.scratch_bytes = std::max(gathered, delivered);

  batch_builder middle, finish;
  turns order;
  std::uint32_t last = 0;
  for (const task& work : batch.middle) {
    const step s = step_of(work);
    const placed_view target = placed(work, s, true, false);
    const std::uint32_t phase = order.next(target);
    last = std::max(last, phase + 1);
    if (auto added = append(middle, s, target, placed(work, s, false, false), phase); !added)
      return at(std::move(added).error(), work, s);
  }
  const auto targets = static_cast<std::uint32_t>(memory_.destinations().size());
  const auto sources = static_cast<std::uint32_t>(memory_.sources().size()) + targets;
  for (const staging_region& region : batch.regions) {
    const transfer_types& types = route_.types[region.transfer];
    if (types.sum != types.from)
      SHARDMESH_TRY(append_rounding(middle, targets, sources, region.offset, region.volume, types, last));
  }
  // Copies between slots come first, then the work on their targets.
  turns finishing;
  for (const task& work : batch.finish) {
    const step s = step_of(work);
    const placed_view target = placed(work, s, true, true);
    const std::uint32_t phase = s.phase == step_phase::repeat ? 0 : 1 + finishing.next(target);
    if (s.kind == step_kind::copy)
      made.finish.copied_bytes += bytes_of(s.where, route_.types[work.transfer].in_message(s));
    if (auto added = append(finish, s, target, placed(work, s, false, true), phase); !added)
      return at(std::move(added).error(), work, s);
  }
  if (!middle.empty()) {
    SHARDMESH_TRY(made.middle.batch, batched_->backend->prepare(middle.items(), batched_->memory));
  }
  if (!finish.empty()) {
    SHARDMESH_TRY(made.finish.batch, batched_->backend->prepare(finish.items(), batched_->memory));
  }
  return {};
}

result<void> executor::state::prepare_batches() {
  batched_work& b = *batched_;
  if (b.shapes == memory_.shapes()) return {};
  b.shapes = -1;
  b.routes.clear();
  b.routes.resize(route_.batches.size());
  for (batch_ = 0; batch_ < route_.batches.size(); ++batch_) SHARDMESH_TRY(prepare_route(b.routes[batch_]));
  b.shapes = memory_.shapes();
  return {};
}

// Sets the stream, the scratch memory, and the addresses of the run that begins.
result<void> executor::state::open_launches() {
  batched_work& b = *batched_;
  b.stream = call_.stream;
  if (b.stream.handle == nullptr) {
    if (!b.own.owner) {
      SHARDMESH_TRY(b.own, b.backend->make_stream(b.memory));
    }
    b.stream = b.own.stream;
  }
  // A run on another stream may still use the scratch memory.
  if (b.end && !(b.last == b.stream)) SHARDMESH_TRY(b.end->hold(b.stream));
  std::int64_t scratch_bytes = collective_room_;
  for (const batched_route& one : b.routes) scratch_bytes = std::max(scratch_bytes, one.scratch_bytes);
  if (scratch_bytes > b.scratch.size_bytes()) {
    SHARDMESH_TRY(wait_for_latest_run());  // it uses the memory that is freed here
    SHARDMESH_TRY(b.scratch, b.backend->allocate(scratch_bytes, b.memory, b.stream));
  }
  b.to.clear();
  b.from.clear();
  for (const const_tensor_view& slot : memory_.sources()) b.from.push_back(slot.data);
  for (const tensor_view& slot : memory_.destinations()) {
    b.to.push_back(slot.data);
    b.from.push_back(slot.data);
  }
  b.to.push_back(b.scratch.data());
  b.from.push_back(b.scratch.data());
  staging_ = b.scratch.data();
  return {};
}

result<void> executor::state::launch(const batched_stage& stage) {
  if (stage.batch)
    if (auto launched = batched_->backend->run(*stage.batch, {batched_->to, batched_->from}, batched_->stream);
        !launched)
      return std::move(launched).error().with_rank(comm_.rank());
  if (stage.copied_bytes > 0) report(stage.copied_bytes);
  return check_interruption(stage.copied_bytes);
}

result<void> executor::state::begin_batched_exchange(const message_round& round) {
  const batched_route& work = batched_->routes[batch_];
  const batched_round& how = delivers_ ? work.deliver : work.gather;
  SHARDMESH_TRY(launch(how.before));
  if (round.sends.empty() && round.receives.empty()) return {};
  outgoing_.clear();
  incoming_.clear();
  for (std::size_t i = 0; i < round.sends.size(); ++i) {
    const message& m = round.sends[i];
    const std::byte* bytes = how.sent[i] == batched_round::straight ? straight_source(round.outgoing[m.first])
                                                                    : batched_->scratch.data() + how.sent[i];
    outgoing_.push_back({m.peer, {bytes, static_cast<std::size_t>(m.size_bytes)}});
  }
  for (std::size_t i = 0; i < round.receives.size(); ++i) {
    const message& m = round.receives[i];
    const task& piece = round.late[m.first];
    std::byte* bytes = how.received[i] == batched_round::straight ? target_of(piece, step_of(piece), delivers_).data
                                                                  : batched_->scratch.data() + how.received[i];
    incoming_.push_back({m.peer, {bytes, static_cast<std::size_t>(m.size_bytes)}});
  }
  SHARDMESH_TRY(exchange_, comm_.start_exchange(outgoing_, incoming_, stream_call()));
  return {};
}

const std::byte* executor::state::straight_source(const task& piece) const {
  const step s = step_of(piece);
  if (s.from.side != buffer_side::staging) return source_of(piece, s, delivers_).data;
  return batched_->scratch.data() + placed(piece, s, false, delivers_).offset_bytes;
}

result<void> executor::state::mark_end() {
  SHARDMESH_TRY(batched_->end, batched_->backend->record(batched_->memory, batched_->stream));
  batched_->last = batched_->stream;
  return {};
}

// Waits until all enqueued work is done. An empty exchange reports the failures that the communicator has found
// meanwhile. It also runs at the end, because an abort lets the stream finish. The communicator enforces the deadline
// and knows the missing ranks, so this rank checks the deadline itself only after a grace period.
result<bool> executor::state::drain(bool may_block) {
  constexpr std::chrono::milliseconds grace{500};
  call_options asking;  // no deadline: the exchanges enforce it
  asking.stream = batched_->stream;
  asking.name = call_.name;
  if (!draining_) SHARDMESH_TRY(mark_end());
  draining_ = true;
  for (int round = 0;; ++round) {
    SHARDMESH_TRY(const bool done, batched_->end->done());
    if (is_on_stream()) {
      SHARDMESH_TRY(pending sound, comm_.start_exchange({}, {}, asking));
      SHARDMESH_TRY(sound.wait());
    }
    if (done) break;
    if (!call_.deadline || std::chrono::steady_clock::now() > *call_.deadline + grace) SHARDMESH_TRY(check_call());
    if (!may_block) return false;
    if (round > 64) std::this_thread::sleep_for(std::chrono::microseconds(std::min(round, 200)));
  }
  draining_ = false;
  return true;
}

result<void> executor::state::wait_for_latest_run() {
  return batched_ && batched_->end ? batched_->end->wait() : result<void>();
}

void executor::state::finish_stream() {
  if (auto end = batched_->backend->record(batched_->memory, batched_->stream)) static_cast<void>((*end)->wait());
}

}  // namespace shardmesh
