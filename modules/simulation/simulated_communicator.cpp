// SPDX-License-Identifier: Apache-2.0
module;
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.simulation;

import :engine;

namespace shardmesh {
namespace {

// The message group of a communicator. It holds a copy, which lives as long as the collectives need it.
message_group messages_of(const simulated_communicator& comm) {
  return {comm.rank(), comm.size(),
          [copy = comm](std::span<const outgoing> sends, std::span<const incoming> receives,
                        const call_options& options) mutable { return copy.start_exchange(sends, receives, options); },
          [copy = comm](const error& reason) mutable { copy.abort(reason); }};
}

}  // namespace

static_assert(collective_communicator<simulated_communicator> && !memory_sharing_communicator<simulated_communicator>);

std::int32_t simulated_communicator::size() const {
  return state_->size();
}

result<std::vector<std::vector<std::byte>>> simulated_communicator::all_gather(std::span<const std::byte> bytes,
                                                                               const call_options& options) {
  return state_->all_gather(rank_, bytes, options);
}

result<pending> simulated_communicator::start_exchange(std::span<const outgoing> sends,
                                                       std::span<const incoming> receives,
                                                       const call_options& options) {
  return state_->start_exchange(rank_, sends, receives, options);
}

result<pending> simulated_communicator::all_gather_into(std::span<const std::byte> send, std::span<std::byte> receive,
                                                        const call_options& options) {
  return all_gather_into_by_messages(messages_of(*this), send, receive, options);
}

result<pending> simulated_communicator::all_to_all(std::span<const std::byte> send, std::span<std::byte> receive,
                                                   const call_options& options) {
  return all_to_all_by_messages(messages_of(*this), send, receive, options);
}

result<pending> simulated_communicator::reduce_scatter(std::span<const std::byte> send, std::span<std::byte> receive,
                                                       dtype type, reduce_op op, const call_options& options) {
  return reduce_scatter_by_messages(messages_of(*this), send, receive, type, op, options);
}

result<pending> simulated_communicator::all_reduce(std::span<const std::byte> send, std::span<std::byte> receive,
                                                   dtype type, reduce_op op, const call_options& options) {
  return all_reduce_by_messages(messages_of(*this), send, receive, type, op, options);
}

result<pending> simulated_communicator::broadcast(std::span<const std::byte> send, std::span<std::byte> receive,
                                                  std::int32_t root, const call_options& options) {
  return broadcast_by_messages(messages_of(*this), send, receive, root, options);
}

void simulated_communicator::abort(const error& reason) {
  state_->abort(rank_, reason);
}

object_numbers simulated_communicator::numbers() const {
  return state_->of(rank_).numbers;
}

std::chrono::nanoseconds simulated_communicator::now() const {
  return state_->of(rank_).now;
}

void simulated_communicator::spend(std::chrono::nanoseconds length) {
  state_->spend(rank_, length);
}

}  // namespace shardmesh
