// SPDX-License-Identifier: Apache-2.0
// Advances a run. Per batch it gathers values and terms, makes sums, delivers results, and does the work without
// messages.
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :batched_work;
import :bound_memory;
import :collective;
import :rank_plan;
import :route;
import :run;
import :schedule;

namespace shardmesh {
namespace {

// User tags below the stride never collide with those of executors or of subgroups (see subgroup.cpp).
constexpr std::uint32_t tag_stride = 1U << 12;

tensor_view row_major(std::byte* data, dtype type, const extents& sizes) {
  return {data, type, {}, sizes, contiguous_strides(sizes)};
}

}  // namespace

result<std::byte*> scratch::reserve(std::int64_t size_bytes) {
  if (size_bytes > capacity_) {
    memory_.reset();
    capacity_ = 0;
    memory_.reset(new (std::nothrow) std::byte[static_cast<std::size_t>(size_bytes)]);
    if (!memory_) return fail(errc::no_memory, fmt::format("no {} for messages", human_bytes(size_bytes)));
    capacity_ = size_bytes;
  }
  return memory_.get();
}

executor::state::state(transfer_plan p, const rank_plan& mine, communicator_ref c,
                       std::vector<std::string> transfer_names, const run_options& o, bool lend, held_number number,
                       std::int64_t rounds_of_all, std::vector<collective_use> collectives,
                       std::vector<communicator_ref> groups, std::shared_ptr<kernel_backend> backend)
    : plan(std::move(p)),
      rounds(rounds_of_all),
      comm_(c),
      names_(std::move(transfer_names)),
      options_(o),
      lends_(lend),
      number_(std::move(number)),
      route_(make_route(plan, mine, schedule(mine.clock(), rounds_of_all), !lend)),
      memory_(plan, c.rank(), c.memory()),
      collectives_(std::move(collectives)),
      groups_(std::move(groups)) {
  if (backend) batched_.emplace(std::move(backend), c.memory());
  std::size_t sends = 0, receives = 0;
  for (const batch_route& batch : route_.batches)
    for (const message_round* round : {&batch.gather, &batch.deliver}) {
      sends = std::max(sends, round->sends.size());
      receives = std::max(receives, round->receives.size());
    }
  for (const collective_use& use : collectives_) {
    const std::int64_t item = bits(route_.types[use.transfer].from) / 8;
    const std::int64_t slab =
        std::min(std::max<std::int64_t>(use.slab_bytes / item, 1) * item, box::whole(use.block()).volume() * item);
    // The packed slab, and the place where it arrives.
    collective_room_ = std::max(collective_room_, (use.sent() + use.received()) * slab);
  }
  route_.peak_bytes = std::max(route_.peak_bytes, collective_room_);
  arrived_.reserve(receives);
  lenders_.reserve(sends);
  (lends_ ? lent_.reserve(sends) : outgoing_.reserve(sends));
  (lends_ ? borrowed_.reserve(receives) : incoming_.reserve(receives));
}

executor::state::~state() {
  // Work on the user's stream may still use this memory.
  static_cast<void>(wait_for_latest_run());
}

// --- where things are ---

tensor_view executor::state::staging_of(const task& work, const step& s, bool rounded) const {
  const batch_route& batch = route_.batches[batch_];
  const transfer_types& types = route_.types[work.transfer];
  return row_major(staging_ + batch.regions[work.staging].offset, rounded ? types.from : types.sum, s.where.sizes);
}

const_tensor_view executor::state::source_of(const task& work, const step& s, bool rounded) const {
  if (s.from.side == buffer_side::staging) return staging_of(work, s, rounded);
  // `piece_of` succeeds: the pieces were checked when they were bound.
  if (s.from.side == buffer_side::source)
    return *piece_of(memory_.source(work.transfer, s.from.slot), s.from.offsets, s.where.sizes);
  return *piece_of(memory_.destination(work.transfer, s.from.slot), s.from.offsets, s.where.sizes);
}

tensor_view executor::state::target_of(const task& work, const step& s, bool rounded) const {
  if (s.to.side == buffer_side::staging) return staging_of(work, s, rounded);
  return *piece_of(memory_.destination(work.transfer, s.to.slot), s.to.offsets, s.where.sizes);
}

// --- beginning and ending ---

error executor::state::at(error e, const task& work, const step& s) const {
  return std::move(e).with_key(names_[work.transfer]).with_rank(comm_.rank()).with_box(s.where);
}

result<void> executor::state::check_call() const {
  const errc ended = detail::limit_reached(call_.cancel, call_.deadline);
  if (ended == errc::ok) return {};
  return detail::ended_within({comm_.rank(), call_.name, {}, call_.tag}, ended);
}

// Checks for interruptions between pieces of work, a few MiB apart.
result<void> executor::state::check_interruption(std::int64_t bytes) {
  unchecked_bytes_ += bytes;
  if (++unchecked_tasks_ < 256 && unchecked_bytes_ < (std::int64_t{4} << 20)) return {};
  unchecked_bytes_ = unchecked_tasks_ = 0;
  SHARDMESH_TRY(check_call());
  if (lends_ && loan_.interrupted()) {
    SHARDMESH_TRY(loan_.wait());  // its error says what happened
    return fail(errc::communication, "another rank failed");
  }
  return {};
}

result<void> executor::state::begin(std::span<const const_tensor_binding> from, std::span<const tensor_binding> to,
                                    const call_options& options) {
  if (running_)
    return fail(errc::invalid_argument, "a run of this executor has not been waited for").with_rank(comm_.rank());
  call_ = options.named("executor::run");
  auto sound = check_call();
  // Binding may replace copies of slots that the latest run still uses.
  if (sound && !memory_.staging().empty()) sound = wait_for_latest_run();
  if (sound) sound = memory_.bind(route_, from, to, [this](std::size_t t) { return names_[t]; });
  if (sound && batched_) sound = prepare_batches();
  if (sound && batched_) sound = open_launches();
  if (options_.check == check_policy::every_run) {
    const agree_options agreement{.what = "runs", .problem = sound ? nullptr : &sound.error()};
    const std::vector<agreement_record> record{{"plan", to_hex(plan.digest())}};
    SHARDMESH_TRY(agree(comm_, record, agreement, call_));
  } else if (!sound) {
    comm_.abort(sound.error());
    return sound;
  }
  call_.tag = options.tag % tag_stride + number_.value() * tag_stride;
  if (auto pulled = memory_.staging().pull(stream_call()); !pulled) {
    comm_.abort(pulled.error());
    return pulled;
  }
  running_ = true;
  delivers_ = false;
  stage_ = run_stage::begin;
  batch_ = 0;
  collective_ = 0;
  written_.clear();
  for (const tensor_binding& binding : to)
    if (binding.written) written_.push_back(binding.written);
  draining_ = false;
  slabs_.reset();
  in_slab_ = false;
  return {};
}

std::optional<result<void>> executor::state::advance_safely(bool may_block) {
  const auto give_up = [this](error reason) {
    running_ = false;
    comm_.abort(reason);
    // Exchanges in flight now end with the reason that poisoned the communicator. Enqueued work ends as well.
    const auto exchanged = exchange_.wait();
    const auto read = loan_.wait();
    if (batched_) finish_stream();
    return reason;
  };
  try {
    auto moved = advance(may_block);
    if (!moved) return result<void>(give_up(std::move(moved).error()));
    if (!*moved) return std::nullopt;
    running_ = false;
    call_ = {};
    for (const auto& tell : written_) tell();
    return result<void>();
  } catch (const std::exception& e) {
    static_cast<void>(
        give_up(fail(errc::communication, fmt::format("a run ended early: {}", e.what())).with_rank(comm_.rank())));
    throw;
  } catch (...) {
    static_cast<void>(give_up(fail(errc::communication, "a run ended early").with_rank(comm_.rank())));
    throw;
  }
}

// A run is a state machine, not a thread: `pending::done` advances it a little. Several executors can thus move at once
// on one thread, and no rank waits inside for a peer that needs this rank elsewhere (see `concurrent_runs`).
result<bool> executor::state::advance(bool may_block) {
  SHARDMESH_TRY(const bool collected, advance_collectives(may_block));
  if (!collected) return false;
  while (batch_ < route_.batches.size()) {
    const batch_route& batch = route_.batches[batch_];
    const message_round& round = delivers_ ? batch.deliver : batch.gather;
    switch (stage_) {
      case run_stage::begin:
        if (!delivers_ && !batched_) {
          const std::int64_t messages = std::max(packed_bytes(batch.gather), packed_bytes(batch.deliver));
          SHARDMESH_TRY(staging_, scratch_.reserve(batch.staging_bytes + messages));
        }
        SHARDMESH_TRY(begin_round(round));
        if (!batched_) SHARDMESH_TRY(work_through(round.early));
        stage_ = run_stage::wait;
        break;
      case run_stage::wait:
        // On a stream, this waits only until the messages are enqueued.
        if (!may_block && !is_on_stream() && !is_ready()) return false;
        SHARDMESH_TRY(wait_for_messages());
        SHARDMESH_TRY(read_round(round));
        if (lends_ && !may_block) loan_.give_back();  // a blocking wait does this itself
        stage_ = run_stage::read;
        break;
      case run_stage::read:  // until peers release this rank's memory
        if (!may_block && lends_ && !loan_.done()) return false;
        if (lends_) SHARDMESH_TRY(loan_.wait());
        stage_ = run_stage::begin;
        if (!delivers_) {
          SHARDMESH_TRY(work_between(batch));
          delivers_ = true;
        } else {
          SHARDMESH_TRY(work_at_end(batch));
          delivers_ = false;
          ++batch_;
        }
        break;
    }
  }
  return end(may_block);
}

// A run on the user's stream ends when all of it is enqueued. Any other run ends when its slots are complete.
result<bool> executor::state::end(bool may_block) {
  if (batched_ && is_on_users_stream()) {
    SHARDMESH_TRY(memory_.staging().push(stream_call()));
    SHARDMESH_TRY(mark_end());
    return true;
  }
  if (batched_) {
    SHARDMESH_TRY(const bool drained, drain(may_block));
    if (!drained) return false;
  }
  SHARDMESH_TRY(memory_.staging().push(call_));
  return true;
}

// --- messages ---

result<void> executor::state::begin_round(const message_round& round) {
  if (batched_) return begin_batched_exchange(round);
  if (round.sends.empty() && round.receives.empty()) return {};
  return lends_ ? begin_lending(round) : begin_exchange(round);
}

result<void> executor::state::begin_lending(const message_round& round) {
  lenders_.resize(round.sends.size());
  lent_.clear();
  borrowed_.clear();
  for (std::size_t i = 0; i < round.sends.size(); ++i) {
    const message& m = round.sends[i];
    lenders_[i].self = this;
    lenders_[i].round = &round;
    lenders_[i].first = m.first;
    lenders_[i].rounded = delivers_;
    lent_.push_back({m.peer, &lenders_[i], m.size_bytes});
  }
  for (const message& m : round.receives) borrowed_.push_back({m.peer, m.size_bytes});
  SHARDMESH_TRY(loan_, comm_.start_lending(lent_, borrowed_, call_));
  return {};
}

result<void> executor::state::pack(const message_round& round, const message& m, std::byte* to) {
  for (std::size_t i = m.first; i < m.first + m.pieces; ++i) {
    const task& piece = round.outgoing[i];
    const step s = step_of(piece);
    const dtype type = route_.types[piece.transfer].in_message(s);
    if (auto done = copy(row_major(to + piece.offset, type, s.where.sizes), source_of(piece, s, delivers_)); !done)
      return at(std::move(done).error(), piece, s);
    SHARDMESH_TRY(check_interruption(bytes_of(s.where, type)));
  }
  return {};
}

// A message that is one contiguous piece of the slot is sent from its place, without a packing copy. Each end decides
// this alone, because the bytes on the wire are the same.
bool executor::state::is_sent_directly(const message_round& round, const message& m) const {
  if (m.pieces != 1) return false;
  const task& piece = round.outgoing[m.first];
  const step s = step_of(piece);
  const transfer_types& types = route_.types[piece.transfer];
  if (s.from.side == buffer_side::staging) return types.from == types.in_message(s);  // sums are sent after rounding
  const const_tensor_view view = source_of(piece, s, true);
  return is_contiguous(view) && view.type == types.in_message(s);
}

bool executor::state::is_received_directly(const message_round& round, const message& m) const {
  if (m.pieces != 1) return false;
  const task& piece = round.late[m.first];
  const step s = step_of(piece);
  if (s.to.side != buffer_side::destination) return false;
  const tensor_view view = target_of(piece, s, true);
  return is_contiguous(view) && view.type == route_.types[piece.transfer].in_message(s);
}

std::int64_t executor::state::packed_bytes(const message_round& round) const {
  if (lends_) return 0;
  std::int64_t sum = 0;
  for (const message& m : round.sends) sum += is_sent_directly(round, m) ? 0 : m.size_bytes;
  for (const message& m : round.receives) sum += is_received_directly(round, m) ? 0 : m.size_bytes;
  return sum;
}

result<void> executor::state::begin_exchange(const message_round& round) {
  std::byte* room = staging_ + route_.batches[batch_].staging_bytes;
  outgoing_.clear();
  incoming_.clear();
  arrived_.clear();
  for (const message& m : round.sends) {
    const std::byte* bytes = room;
    if (is_sent_directly(round, m)) {
      bytes = source_of(round.outgoing[m.first], delivers_).data;
    } else {
      SHARDMESH_TRY(pack(round, m, room));
      room += m.size_bytes;
    }
    outgoing_.push_back({m.peer, {bytes, static_cast<std::size_t>(m.size_bytes)}});
  }
  for (const message& m : round.receives) {
    std::byte* bytes = room;
    if (is_received_directly(round, m)) {
      const task& piece = round.late[m.first];
      bytes = target_of(piece, step_of(piece), delivers_).data;
      arrived_.push_back(nullptr);
    } else {
      arrived_.push_back(room);
      room += m.size_bytes;
    }
    incoming_.push_back({m.peer, {bytes, static_cast<std::size_t>(m.size_bytes)}});
  }
  SHARDMESH_TRY(exchange_, comm_.start_exchange(outgoing_, incoming_, call_));
  return {};
}

// --- work ---

result<void> executor::state::carry_out(const task& work, const step& s, const const_tensor_view& from) {
  const tensor_view to = target_of(work, s, delivers_);
  const auto act = [&]() -> result<void> {
    switch (s.kind) {
      case step_kind::copy:
        return is_same_memory(to, from) ? result<void>() : copy(to, from);
      case step_kind::accumulate:
        return accumulate(to, from, s.reduction);
      case step_kind::fill:
        return fill_identity(to, s.reduction);
      case step_kind::divide:  // a product with 1 / n would round twice
        return divide(to, static_cast<double>(s.factor));
      case step_kind::scale:
        break;
    }
    return scale(to, static_cast<double>(s.factor));
  };
  if (auto done = act(); !done) return at(std::move(done).error(), work, s);
  const std::int64_t size_bytes = bytes_of(s.where, route_.types[work.transfer].in_message(s));
  if (s.kind == step_kind::copy || s.kind == step_kind::accumulate) report(size_bytes);
  return check_interruption(size_bytes);
}

result<void> executor::state::work_through(std::span<const task> tasks) {
  for (const task& work : tasks) {
    const step s = step_of(work);
    SHARDMESH_TRY(carry_out(work, s, source_of(work, s, delivers_)));
  }
  return {};
}

// Works through received pieces, and local work ordered among them. Terms are combined in the table's order.
result<void> executor::state::read_round(const message_round& round) {
  if (batched_) {
    const batched_route& work = batched_->routes[batch_];
    return launch(delivers_ ? work.deliver.after : work.gather.after);
  }
  for (const task& work : round.late) {
    const step s = step_of(work);
    if (work.message == no_message) {
      SHARDMESH_TRY(carry_out(work, s, source_of(work, s, delivers_)));
    } else if (lends_) {
      SHARDMESH_TRY(carry_out(work, s, loan_.from(work.message).piece(work.piece)));
    } else if (std::byte* const message = arrived_[work.message]; message != nullptr) {
      const dtype type = route_.types[work.transfer].in_message(s);
      SHARDMESH_TRY(carry_out(work, s, row_major(message + work.offset, type, s.where.sizes)));
    } else {
      report(bytes_of(s.where, route_.types[work.transfer].in_message(s)));
    }
  }
  return {};
}

result<void> executor::state::work_between(const batch_route& batch) {
  if (batched_) return launch(batched_->routes[batch_].middle);
  SHARDMESH_TRY(work_through(batch.middle));
  return round_sums(batch);
}

result<void> executor::state::work_at_end(const batch_route& batch) {
  return batched_ ? launch(batched_->routes[batch_].finish) : work_through(batch.finish);
}

// Rounds sums in a wider type to the source's type, in place. The narrow elements never overtake the wide ones.
result<void> executor::state::round_sums(const batch_route& batch) {
  constexpr std::int64_t block = 1024;
  std::byte rounded[block * 16];
  for (const staging_region& region : batch.regions) {
    const transfer_types& types = route_.types[region.transfer];
    if (types.sum == types.from) continue;
    const std::int64_t wide = item_bytes(types.sum), narrow = item_bytes(types.from);
    std::byte* const begin = staging_ + region.offset;
    for (std::int64_t i = 0; i < region.volume; i += block) {
      const std::int64_t n = std::min(block, region.volume - i);
      SHARDMESH_TRY(copy(row_major(rounded, types.from, {n}), row_major(begin + i * wide, types.sum, {n})));
      std::memcpy(begin + i * narrow, rounded, static_cast<std::size_t>(n * narrow));
    }
  }
  return {};
}

}  // namespace shardmesh
