// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :batch_tables;
import :batch_worker;
import :bound_memory;
import :collective;
import :collective_driver;
import :host_worker;
import :lent_pieces;
import :rank_plan;
import :round_messages;
import :route;
import :route_cursor;
import :run;
import :run_call;
import :schedule;
import :scratch;
import :staging_copies;
import :step_memory;
import :transfer_names;

namespace shardmesh {
namespace {

// User tags below the stride never collide with those of executors or of subgroups (see subgroup.cpp).
constexpr std::uint32_t tag_stride = 1U << 12;

}  // namespace

executor::state::state(transfer_plan p, const rank_plan& mine, communicator_ref c, std::vector<std::string> names,
                       const run_options& options, run_setup setup)
    : plan(std::move(p)),
      rounds(setup.rounds),
      comm_(c),
      check_(options.check),
      number_(std::move(setup.number)),
      names_(std::move(names), c.rank()),
      route_(make_route(plan, mine, schedule(mine.clock(), setup.rounds), !setup.lends)),
      memory_(plan, c.rank(), c.memory()),
      call_(c.rank(), options.progress),
      steps_(route_, memory_),
      lenders_(steps_, most_messages(route_).sends),
      messages_(c, setup.lends ? message_transport::lending : message_transport::exchange, most_messages(route_)),
      collectives_(c, std::move(setup.groups), std::move(setup.collectives), route_, memory_, call_, scratch_),
      host_(steps_, names_, call_, scratch_, lenders_, messages_, most_messages(route_).receives),
      at_(route_) {
  if (setup.backend) batches_.emplace(c, route_, memory_, steps_, names_, call_, std::move(setup.backend));
}

executor::state::~state() {
  // Work on the user's stream may still use this memory.
  static_cast<void>(wait_for_latest_run());
}

std::int64_t executor::state::peak_bytes() const {
  return std::max(route_.peak_bytes, collectives_.room_bytes());
}

result<void> executor::state::wait_for_latest_run() {
  return batches_ ? batches_->wait_for_latest_run() : result<void>();
}

// --- the beginning of a run ---

result<void> executor::state::begin(std::span<const const_tensor_binding> from, std::span<const tensor_binding> to,
                                    const call_options& options) {
  if (running_)
    return fail(errc::invalid_argument, "an earlier run of this executor is still pending")
        .with_rank(comm_.rank())
        .with_hint("wait for it first");
  call_.begin(options.named("executor::run"));
  auto sound = prepare(from, to);
  if (check_ == check_policy::every_run) {
    const agree_options agreement{.what = "runs", .problem = sound ? nullptr : &sound.error()};
    const std::vector<agreement_record> record{{"plan", to_hex(plan.digest())}};
    SHARDMESH_TRY(agree(comm_, record, agreement, call_.options()));
  } else if (!sound) {
    comm_.abort(sound.error());
    return sound;
  }
  call_.set_tag(options.tag % tag_stride + number_.value() * tag_stride);
  if (auto pulled = memory_.copies().pull(call_.on_stream()); !pulled) {
    comm_.abort(pulled.error());
    return pulled;
  }
  running_ = true;
  collectives_.begin();
  at_ = route_cursor(route_);
  stage_ = run_stage::start_round;
  written_.clear();
  for (const tensor_binding& binding : to)
    if (binding.written) written_.push_back(binding.written);
  return {};
}

result<void> executor::state::prepare(std::span<const const_tensor_binding> from, std::span<const tensor_binding> to) {
  SHARDMESH_TRY(call_.check());
  // Binding may replace copies of slots that the latest run still uses.
  if (!memory_.copies().empty()) SHARDMESH_TRY(wait_for_latest_run());
  SHARDMESH_TRY(memory_.bind(route_, from, to, [this](std::size_t t) { return names_.of(t); }));
  return batches_ ? batches_->begin(collectives_.room_bytes()) : result<void>();
}

// --- the run ---

std::optional<result<void>> executor::state::advance_safely(bool may_block) {
  try {
    auto moved = advance(may_block);
    if (!moved) {
      give_up(moved.error());
      return result<void>(std::move(moved).error());
    }
    if (!*moved) return std::nullopt;
    running_ = false;
    call_.end();
    for (const auto& notify : written_) notify();
    return result<void>();
  } catch (const std::exception& e) {
    give_up(fail(errc::communication, fmt::format("an exception ended the run: {}", e.what())).with_rank(comm_.rank()));
    throw;
  } catch (...) {
    give_up(fail(errc::communication, "an unknown exception ended the run").with_rank(comm_.rank()));
    throw;
  }
}

void executor::state::give_up(const error& reason) {
  running_ = false;
  comm_.abort(reason);
  // Messages in flight now end with the reason that poisoned the communicator. Enqueued work ends as well.
  collectives_.end_aborted();
  messages_.end_aborted();
  if (batches_) batches_->finish_stream();
}

// A run is a state machine, not a thread: `pending::done` advances it a little. Several executors can thus move at once
// on one thread, and a rank never blocks in one run while a peer needs it in another (see `concurrent_runs`). A run is
// not a coroutine either: the compiler would choose the size of its frame, and a run allocates nothing. Each call skips
// the work that is done, and continues from the collective, the round, and the stage at which it stopped.
result<bool> executor::state::advance(bool may_block) {
  SHARDMESH_TRY(const bool collected, collectives_.advance(may_block, batches_ ? batches_->room() : nullptr));
  if (!collected) return false;
  for (; !at_.is_at_end(); at_.next_round()) {
    if (stage_ == run_stage::start_round) {
      SHARDMESH_TRY(start_round());
      stage_ = run_stage::await_messages;
    }
    if (stage_ == run_stage::await_messages) {
      // On a stream, this waits only until the messages are enqueued.
      if (!may_block && !call_.is_on_stream() && !messages_.are_ready()) return false;
      SHARDMESH_TRY(messages_.wait());
      SHARDMESH_TRY(read_round());
      if (!may_block) messages_.give_back();  // a blocking wait does this itself
      stage_ = run_stage::await_release;
    }
    // Peers may still read the memory that the next work changes.
    if (!may_block && !messages_.are_released()) return false;
    SHARDMESH_TRY(messages_.wait_released());
    SHARDMESH_TRY(end_round());
    stage_ = run_stage::start_round;
  }
  return end(may_block);
}

// A run on the user's stream ends when all of it is enqueued. Any other run ends when its slots are complete.
result<bool> executor::state::end(bool may_block) {
  if (batches_ && call_.is_on_users_stream()) {
    SHARDMESH_TRY(memory_.copies().push(call_.on_stream()));
    SHARDMESH_TRY(batches_->mark_end());
    return true;
  }
  if (batches_) {
    if (stage_ != run_stage::drain) SHARDMESH_TRY(batches_->mark_end());
    stage_ = run_stage::drain;
    SHARDMESH_TRY(const bool is_drained, batches_->drain(may_block));
    if (!is_drained) return false;
  }
  SHARDMESH_TRY(memory_.copies().push(call_.options()));
  return true;
}

}  // namespace shardmesh
