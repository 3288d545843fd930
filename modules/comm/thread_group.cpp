// SPDX-License-Identifier: Apache-2.0
// The group of threads, and the communicator of each. `thread_state` is their shared state.
module;
#include <fmt/core.h>
#include <shardmesh/assert.hpp>
#include <shardmesh/try.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.comm;

import :thread_state;

namespace shardmesh {
namespace {

using guard = std::unique_lock<std::mutex>;
using gathered = std::vector<std::vector<std::byte>>;

// The message group of a communicator. It holds a copy, which lives as long as the collectives need it.
message_group messages_of(const thread_communicator& comm) {
  return {comm.rank(), comm.size(),
          [copy = comm](std::span<const outgoing> sends, std::span<const incoming> receives,
                        const call_options& options) mutable { return copy.start_exchange(sends, receives, options); },
          [copy = comm](const error& reason) mutable { copy.abort(reason); }};
}

}  // namespace

std::int32_t thread_communicator::size() const {
  return state_->size;
}

result<gathered> thread_communicator::all_gather(std::span<const std::byte> bytes, const call_options& options) {
  return state_->all_gather(rank_, bytes, options);
}

result<pending> thread_communicator::start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                                    const call_options& options) {
  SHARDMESH_TRY(thread_exchange* const started, start(state_, rank_, sends, receives, options));
  if (started == nullptr) return pending();
  return pending(std::unique_ptr<pending::operation>(&started->as_pending));
}

result<lending> thread_communicator::start_lending(std::span<const lent> lends, std::span<const borrowed> borrows,
                                                   const call_options& options) {
  SHARDMESH_TRY(thread_exchange* const started, start(state_, rank_, lends, borrows, options));
  if (started == nullptr) return lending();
  return lending(std::unique_ptr<lending::operation>(&started->as_lending));
}

result<pending> thread_communicator::all_gather_into(std::span<const std::byte> send, std::span<std::byte> receive,
                                                     const call_options& options) {
  return all_gather_into_by_messages(messages_of(*this), send, receive, options);
}

result<pending> thread_communicator::all_to_all(std::span<const std::byte> send, std::span<std::byte> receive,
                                                const call_options& options) {
  return all_to_all_by_messages(messages_of(*this), send, receive, options);
}

result<pending> thread_communicator::reduce_scatter(std::span<const std::byte> send, std::span<std::byte> receive,
                                                    dtype type, reduce_op op, const call_options& options) {
  return reduce_scatter_by_messages(messages_of(*this), send, receive, type, op, options);
}

result<pending> thread_communicator::all_reduce(std::span<const std::byte> send, std::span<std::byte> receive,
                                                dtype type, reduce_op op, const call_options& options) {
  return all_reduce_by_messages(messages_of(*this), send, receive, type, op, options);
}

result<pending> thread_communicator::broadcast(std::span<const std::byte> send, std::span<std::byte> receive,
                                               std::int32_t root, const call_options& options) {
  return broadcast_by_messages(messages_of(*this), send, receive, root, options);
}

object_numbers thread_communicator::numbers() const {
  return state_->desk(rank_).numbers;
}

void thread_communicator::abort(const error& reason) {
  if (state_->is_forked()) return;
  const guard locked(state_->lock);
  state_->set_poison(reason, rank_);
}

// In a forked child the state is leaked: destroying a condition variable waits for the threads that waited at the fork.
thread_group::thread_group(std::int32_t size)
    : state_(new thread_state(size), [](thread_state* state) {
        if (!state->is_forked()) delete state;
      }) {
  SHARDMESH_ASSERT(size >= 1);
}

std::int32_t thread_group::size() const {
  return state_->size;
}

thread_communicator thread_group::communicator(std::int32_t rank) const {
  SHARDMESH_ASSERT(rank >= 0 && rank < size());
  return {state_, rank};
}

void thread_group::leave(std::int32_t rank) const {
  if (state_->is_forked()) return;
  const guard locked(state_->lock);
  state_->desk(rank).left = true;
  for (std::int32_t other = 0; other < state_->size; ++other) {
    // Ranks in all_gather detect the departure themselves; this loop finds the ranks with pending messages.
    const auto waiting = [&](const channel& line, bool sends) {
      for (const message_end* end = line.first; end != nullptr; end = end->next)
        if (end->sends == sends) return true;
      return false;
    };
    if (waiting(state_->between(rank, other), false) || waiting(state_->between(other, rank), true))
      state_->set_poison(
          fail(errc::communication, fmt::format("rank {} waits for rank {}, which has left the group", other, rank))
              .with_rank(rank),
          other);
    state_->desk(other).signal();
  }
}

result<void> thread_group::status() const {
  if (state_->is_forked()) return state_->of_another_process(0);
  const guard locked(state_->lock);
  if (!state_->poison) return {};
  return detail::reported_by(*state_->poison, state_->poisoned_by);
}

std::string thread_group::trace() const {
  if (state_->is_forked()) return "the ranks belong to the process that forked this one\n";
  const guard locked(state_->lock);
  std::string text;
  for (std::int32_t rank = 0; rank < state_->size; ++rank)
    text += fmt::format("rank {}: {}; {}\n", rank, state_->desk(rank).left ? "left" : state_->desk(rank).trace.now(),
                        state_->desk(rank).trace.history());
  return text;
}

}  // namespace shardmesh
