// SPDX-License-Identifier: Apache-2.0
// How calls and engines end: errors of NCCL, of the device, and of other ranks, deadlines, aborts, and finalising.
module;
#include "includes.hpp"
module shardmesh.nccl;

import :engine;

namespace shardmesh::nccl {
namespace {

constexpr std::chrono::milliseconds ask_every{1};  // a wait checks for errors of other ranks at most this often
constexpr std::chrono::seconds parting{5};         // the time limit of NCCL's finalising

}  // namespace

void engine::look(clock::duration at_most_every) {
  if (poison_) return;
  if (queue_.empty()) {  // otherwise `advance` checks this
    int state = success;
    auto asked = parts_.nccl.check(parts_.nccl.call().comm_get_async_error(comm_, &state), "ncclCommGetAsyncError",
                                   parts_.where, comm_);
    if (asked) asked = parts_.nccl.check(state, "work of the communicator", parts_.where, comm_);
    if (!asked) return poison(std::move(asked).error(), true);
  }
  const auto now = clock::now();
  if (now - asked_control_ < at_most_every) return;
  asked_control_ = now;
  if (auto heard = heard_from(told_by_); !heard) poison(std::move(heard).error(), false);
}

bool engine::is_over(operation& op) {
  if (op.at == stage::done) return true;
  if (op.at != stage::running || poison_) return false;
  const auto over = op.finished.done();
  if (!over) return poison(over.error(), true), false;
  if (!*over) return false;
  look(ask_every);  // an operation also ends when NCCL fails
  if (poison_) return false;
  op.at = stage::done;
  idle_events_.push_back(std::move(op.finished));
  std::erase_if(streamed_, [&](const auto& one) { return one.get() == &op; });
  return true;
}

void engine::check_limits(const operation& op) {
  if (poison_) return;
  const errc ended = op.limits.reached();
  if (ended == errc::ok) return;
  const std::string part = op.what + " over NCCL on " + to_string(parts_.where);
  poison(detail::ended_wait({rank_, part, {}, op.tag}, op.limits, ended, op.senders, op.takers), true);
}

// Waits until NCCL's kernels have seen an abort and ended. Until then they may use the call's memory, which the caller
// frees after the error. So this waits past the call's deadline if necessary, or until the device has failed. Kernels
// that wait on the default stream for the caller's own work see the abort only after that work.
// Calls on callers' streams need no wait: their memory lives until the stream has passed them.
void engine::settle(operation& op) {
  for (patience each;; each.rest()) {
    const guard locked(lock_);
    if (op.is_streamed) return;
    if (op.at == stage::launching && !mark(op)) {  // without an event, wait for the whole stream
      static_cast<void>(parts_.stream.synchronize());
      op.at = stage::done;
    }
    if (op.at != stage::running) return;
    const auto over = op.finished.done();
    if (!over || *over) op.at = stage::done;
  }
}

void engine::watch(const std::stop_token& stop) {
  guard locked(lock_);
  while (has_streamed_.wait(locked, stop, [&] { return !streamed_.empty() || !queue_.empty(); })) {
    advance();
    look(ask_every);
    const auto running = streamed_;  // a copy, because `is_over` erases from the list
    for (const auto& op : running)
      if (!is_over(*op)) check_limits(*op);
    locked.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(500));
    locked.lock();
  }
}

void engine::poison(error reason, bool tells) {
  if (poison_) return;
  reason = detail::reported_by(std::move(reason), rank_);
  if (tells) {
    control_.abort(reason);
    // When several ranks fail at once, all take the error of the first.
    if (auto first = heard_from(told_by_); !first) reason = std::move(first).error();
  }
  poison_ = std::move(reason);
  if (comm_ != nullptr) {
    const cuda::current_device at(parts_.cuda, parts_.where);
    static_cast<void>(parts_.nccl.call().comm_abort(std::exchange(comm_, nullptr)));
  }
  queue_.clear();
  streamed_.clear();
}

engine::~engine() {
  if (watcher_.joinable()) {
    watcher_.request_stop();
    watcher_.join();
  }
  groups_.clear();  // groups end before the whole, in the same order on all ranks
  const guard locked(lock_);
  close();
}

// Finalises NCCL's communicator together with the other ranks; waits for them for a limited time.
void engine::close() {
  if (comm_ == nullptr) return;
  const cuda::current_device at(parts_.cuda, parts_.where);
  const functions& f = parts_.nccl.call();
  const int code = f.comm_finalize(comm_);
  bool is_well = code == success || code == in_progress;
  if (is_well) {
    call_options limit;
    limit.within = parting;
    is_well =
        finish_call(parts_, comm_, "ncclCommFinalize", rank_, limit, [&] { return heard_from(told_by_); }).has_value();
  }
  static_cast<void>(is_well ? f.comm_destroy(comm_) : f.comm_abort(comm_));
  comm_ = nullptr;
}

}  // namespace shardmesh::nccl
