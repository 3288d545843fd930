// SPDX-License-Identifier: Apache-2.0
// Launches operations and waits for them. Engines are made in make.cpp; errors, deadlines, and the shutdown are in
// ending.cpp.
module;
#include "includes.hpp"
module shardmesh.nccl;

import :engine;

namespace shardmesh::nccl {
namespace {

constexpr std::chrono::milliseconds ask_every{1};  // a wait checks for errors of other ranks at most this often

class started final : public pending::operation {
 public:
  started(std::shared_ptr<engine> on, std::shared_ptr<nccl::operation> what)
      : engine_(std::move(on)), operation_(std::move(what)) {}
  // The operation's NCCL and CUDA resources belong to the parent, so a forked child leaks it.
  ~started() override {
    if (engine_->is_forked()) static_cast<void>(new std::shared_ptr<nccl::operation>(std::move(operation_)));
  }
  bool done() override { return engine_->would_not_block(*operation_); }
  result<void> wait() override { return engine_->wait(*operation_); }

 private:
  std::shared_ptr<engine> engine_;
  std::shared_ptr<nccl::operation> operation_;
};

}  // namespace

void patience::rest() {
  constexpr int looks = 64, yields = 256;
  if (rounds_ < looks) {
    ++rounds_;
  } else if (rounds_ < yields) {
    ++rounds_;
    std::this_thread::yield();
  } else {
    rounds_ = std::min(rounds_ + 1, yields + 25);
    std::this_thread::sleep_for(std::chrono::microseconds(20) * (rounds_ - yields));
  }
}

error engine::of_another_process() const {
  return detail::of_another_process(rank_, "make the call in the parent");
}

result<void> engine::check_call(const call_options& options, const char* part) {
  if (is_forked()) return of_another_process();
  const guard locked(lock_);
  look({});
  SHARDMESH_TRY(detail::begin_call({rank_, part, options.name, options.tag}, options, detail::stream_policy::taken,
                                   poison_, [&](error reason) { poison(std::move(reason), true); }));
  return {};
}

result<void> engine::check_memory(const std::byte* address, const char* part) const {
  if (!parts_.options.check_memory) return {};
  cuda::pointer_attributes found;
  SHARDMESH_TRY(parts_.cuda.check(parts_.cuda.call().pointer_get_attributes(&found, address),
                                  "cudaPointerGetAttributes", parts_.where));
  if (found.type == cuda::memory_type_managed ||
      (found.type == cuda::memory_type_device && found.device == parts_.where.index))
    return {};
  const device where = found.type == cuda::memory_type_device
                           ? device{device_type::cuda, static_cast<std::int16_t>(found.device)}
                           : device{};
  return fail(errc::unsupported,
              "rank " + std::to_string(rank_) + " passes memory of another device to " + part + " over NCCL")
      .with_rank(rank_)
      .with_values(to_string(parts_.where), to_string(where));
}

result<pending> engine::start(std::shared_ptr<operation> op, const call_options& options) {
  op->what = detail::part_of_call(op->what, options.name);
  op->tag = options.tag;
  op->limits = limits_of(options, parts_.options);
  op->is_streamed = options.stream.handle != nullptr;
  op->stream = op->is_streamed ? options.stream : parts_.stream.ref();
  {
    const guard locked(lock_);
    if (poison_) return *poison_;
    try {
      if (op->is_streamed && !watcher_.joinable())
        watcher_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
    } catch (const std::system_error& e) {
      return fail(errc::communication, std::string("cannot start a thread that watches a stream: ") + e.what())
          .with_rank(rank_);
    }
    queue_.push_back(op);
    advance();
    has_streamed_.notify_all();
    if (!poison_) return pending(std::make_unique<started>(shared_from_this(), std::move(op)));
  }
  settle(*op);
  return status().error();
}

// Launches queued calls one after the other: NCCL accepts no call before the previous one is on its stream.
void engine::advance() {
  while (!poison_ && !queue_.empty()) {
    operation& op = *queue_.front();
    if (op.at == stage::queued) launch(op);
    if (poison_) return;
    int state = success;
    auto asked = parts_.nccl.check(parts_.nccl.call().comm_get_async_error(comm_, &state), "ncclCommGetAsyncError",
                                   parts_.where, comm_);
    if (asked) asked = parts_.nccl.check(state, op.what, parts_.where, comm_);
    if (!asked) return poison(std::move(asked).error(), true);
    if (state == in_progress) return;
    if (auto marked = mark(op); !marked) return poison(std::move(marked).error(), true);
    if (op.is_streamed) streamed_.push_back(queue_.front());
    queue_.pop_front();
  }
}

void engine::launch(operation& op) {
  const cuda::current_device at(parts_.cuda, parts_.where);
  if (!at.outcome()) return poison(at.outcome().error(), true);
  if (!op.is_streamed && parts_.options.follow_default_stream) {
    auto ordered = before_.record({});
    if (ordered) ordered = before_.hold(op.stream);
    if (!ordered) return poison(std::move(ordered).error(), true);
  }
  const functions& f = parts_.nccl.call();
  const auto failed = [](int code) { return code != success && code != in_progress; };
  int code = f.group_start();
  if (!failed(code)) {
    op.at = stage::launching;
    code = op.launch(comm_, op.stream.handle);
    const int ended = f.group_end();  // even after an error, because groups nest
    if (!failed(code)) code = ended;
  }
  if (failed(code)) poison(parts_.nccl.check(code, op.what, parts_.where, comm_).error(), true);
}

// Records an event on the stream after the call, whose end it signals. The call counts as running from then on.
result<void> engine::mark(operation& op) {
  if (!idle_events_.empty()) {
    op.finished = std::move(idle_events_.back());
    idle_events_.pop_back();
  } else {
    SHARDMESH_TRY(op.finished, cuda::event::make(parts_.cuda, parts_.where));
  }
  SHARDMESH_TRY(op.finished.record(op.stream));
  op.at = stage::running;
  return {};
}

bool engine::would_not_block(operation& op) {
  if (is_forked()) return true;  // `wait` returns an error
  const guard locked(lock_);
  if (!poison_) advance();
  look(ask_every);
  if (poison_ || is_over(op)) return true;
  return poison_ || op.limits.reached() != errc::ok;  // `is_over` may have poisoned it
}

result<void> engine::wait(operation& op) {
  if (is_forked()) return of_another_process();
  for (patience each;; each.rest()) {
    const guard locked(lock_);
    if (!poison_) advance();
    look(ask_every);
    if (!poison_ && op.is_streamed && op.at == stage::running) return {};
    if (is_over(op)) return {};
    check_limits(op);
    if (poison_) break;
  }
  settle(op);
  return status();
}

result<std::vector<std::vector<std::byte>>> engine::all_gather(std::span<const std::byte> bytes,
                                                               const call_options& options) {
  SHARDMESH_TRY(check_call(options, "an all_gather"));
  call_options control = options;
  control.stream = {};  // the bytes are in host memory
  auto all = control_.all_gather(bytes, control);
  if (!all) SHARDMESH_TRY(status());
  return all;
}

void engine::abort(const error& reason) {
  if (is_forked()) return;
  const guard locked(lock_);
  poison(reason, true);
}

result<void> engine::status() {
  if (is_forked()) return of_another_process();
  const guard locked(lock_);
  look({});
  if (poison_) return *poison_;
  return {};
}

result<void*> engine::register_memory(std::span<std::byte> memory) {
  if (is_forked()) return of_another_process();
  const guard locked(lock_);
  if (poison_) return *poison_;
  const cuda::current_device at(parts_.cuda, parts_.where);
  SHARDMESH_TRY(at.outcome());
  void* handle = nullptr;
  auto done =
      parts_.nccl.check(parts_.nccl.call().comm_register(comm_, memory.data(), memory.size(), &handle),
                        "registering " + human_bytes(static_cast<std::int64_t>(memory.size())) + " (ncclCommRegister)",
                        parts_.where, comm_);
  if (!done) return std::move(done).error().with_rank(rank_);
  return handle;
}

void engine::deregister(void* handle) {
  if (is_forked()) return;
  const guard locked(lock_);
  if (comm_ != nullptr && handle != nullptr) static_cast<void>(parts_.nccl.call().comm_deregister(comm_, handle));
}

}  // namespace shardmesh::nccl
