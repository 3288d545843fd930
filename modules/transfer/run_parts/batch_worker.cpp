// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :batch_tables;
import :batch_worker;
import :bound_memory;
import :round_messages;
import :route;
import :route_cursor;
import :run_call;
import :step_memory;
import :transfer_names;

namespace shardmesh {

batch_worker::batch_worker(communicator_ref comm, const route& r, const bound_memory& bound, step_memory& steps,
                           const transfer_names& names, run_call& call, std::shared_ptr<kernel_backend> backend)
    : comm_(comm),
      bound_(bound),
      steps_(steps),
      call_(call),
      backend_(std::move(backend)),
      memory_(comm.memory()),
      tables_(r, bound, steps, names) {}

// --- before the run ---

result<void> batch_worker::begin(std::int64_t slab_bytes) {
  SHARDMESH_TRY(tables_.prepare(*backend_, memory_));
  SHARDMESH_TRY(choose_stream());
  SHARDMESH_TRY(reserve_scratch(std::max(slab_bytes, tables_.scratch_bytes())));
  set_addresses();
  return {};
}

result<void> batch_worker::choose_stream() {
  stream_ref stream = call_.options().stream;
  if (stream.handle == nullptr) {
    if (!own_.owner) {
      SHARDMESH_TRY(own_, backend_->make_stream(memory_));
    }
    stream = own_.stream;
  }
  call_.set_stream(stream);
  // A run on another stream may still use the scratch memory.
  if (end_ && !(last_ == stream)) SHARDMESH_TRY(end_->hold(stream));
  return {};
}

result<void> batch_worker::reserve_scratch(std::int64_t size_bytes) {
  if (size_bytes <= scratch_.size_bytes()) return {};
  SHARDMESH_TRY(wait_for_latest_run());  // it uses the memory that is freed here
  SHARDMESH_TRY(scratch_, backend_->allocate(size_bytes, memory_, call_.stream()));
  return {};
}

void batch_worker::set_addresses() {
  to_.clear();
  from_.clear();
  for (const const_tensor_view& slot : bound_.sources()) from_.push_back(slot.data);
  for (const tensor_view& slot : bound_.destinations()) {
    to_.push_back(slot.data);
    from_.push_back(slot.data);
  }
  to_.push_back(scratch_.data());
  from_.push_back(scratch_.data());
  steps_.set_staging(scratch_.data());
}

// --- rounds ---

result<void> batch_worker::start_round(const route_cursor& at, round_messages& messages) {
  const message_round& round = at.round();
  const batched_round& places = tables_.round(at);
  SHARDMESH_TRY(launch(places.before));
  if (round.sends.empty() && round.receives.empty()) return {};
  messages.clear();
  for (std::size_t i = 0; i < round.sends.size(); ++i) {
    const message& m = round.sends[i];
    const task& piece = round.outgoing[m.first];
    messages.send(m, places.sent[i] == batched_round::straight ? steps_.source_of(piece, steps_.step_of(piece), at).data
                                                               : scratch_.data() + places.sent[i]);
  }
  for (std::size_t i = 0; i < round.receives.size(); ++i) {
    const message& m = round.receives[i];
    const task& piece = round.late[m.first];
    messages.receive(m, places.received[i] == batched_round::straight
                            ? steps_.target_of(piece, steps_.step_of(piece), at).data
                            : scratch_.data() + places.received[i]);
  }
  return messages.start(call_.on_stream());
}

result<void> batch_worker::read_round(const route_cursor& at) {
  return launch(tables_.round(at).after);
}

result<void> batch_worker::end_round(const route_cursor& at) {
  const batched_route& batch = tables_.batch(at);
  return launch(at.is_delivering() ? batch.finish : batch.middle);
}

result<void> batch_worker::launch(const batched_stage& stage) {
  if (stage.batch)
    if (auto launched = backend_->run(*stage.batch, {to_, from_}, call_.stream()); !launched)
      return std::move(launched).error().with_rank(comm_.rank());
  if (stage.copied_bytes > 0) call_.report(stage.copied_bytes);
  return call_.check_after(stage.copied_bytes);
}

// --- the end ---

result<void> batch_worker::mark_end() {
  SHARDMESH_TRY(end_, backend_->record(memory_, call_.stream()));
  last_ = call_.stream();
  return {};
}

// An empty exchange reports the failures that the communicator has found meanwhile. It also runs at the end, because an
// abort lets the stream finish. The communicator enforces the deadline and knows the missing ranks, so this rank checks
// the deadline itself only after a grace period.
result<bool> batch_worker::drain(bool may_block) {
  constexpr std::chrono::milliseconds grace{500};
  call_options probing;  // no deadline: the exchanges enforce it
  probing.stream = call_.stream();
  probing.name = call_.options().name;
  for (int round = 0;; ++round) {
    SHARDMESH_TRY(const bool is_done, end_->done());
    if (call_.is_on_stream()) {
      SHARDMESH_TRY(pending probe, comm_.start_exchange({}, {}, probing));
      SHARDMESH_TRY(probe.wait());
    }
    if (is_done) return true;
    SHARDMESH_TRY(call_.check_late(grace));
    if (!may_block) return false;
    if (round > 64) std::this_thread::sleep_for(std::chrono::microseconds(std::min(round, 200)));
  }
}

result<void> batch_worker::wait_for_latest_run() {
  return end_ ? end_->wait() : result<void>();
}

void batch_worker::finish_stream() {
  if (auto end = backend_->record(memory_, call_.stream())) static_cast<void>((*end)->wait());
}

}  // namespace shardmesh
