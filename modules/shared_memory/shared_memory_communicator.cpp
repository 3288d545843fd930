// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.shared_memory;

import shardmesh.comm;
import :engine;
import :segment;

namespace shardmesh {
namespace {

class exchange_operation final : public pending::operation {
 public:
  exchange_operation(std::shared_ptr<shared_memory::engine> engine, std::shared_ptr<shared_memory::exchange> exchange)
      : engine_(std::move(engine)), exchange_(std::move(exchange)) {}
  bool done() override { return engine_->would_not_block(*exchange_); }
  result<void> wait() override { return engine_->wait(*exchange_); }

 private:
  std::shared_ptr<shared_memory::engine> engine_;
  std::shared_ptr<shared_memory::exchange> exchange_;
};

// The message group of a communicator. It holds a copy, which lives as long as the collectives need it.
message_group messages_of(const shared_memory_communicator& comm) {
  return {comm.rank(), comm.size(),
          [copy = comm](std::span<const outgoing> sends, std::span<const incoming> receives,
                        const call_options& options) mutable { return copy.start_exchange(sends, receives, options); },
          [copy = comm](const error& reason) mutable { copy.abort(reason); }};
}

}  // namespace

result<shared_memory_group> shared_memory_group::make(std::int32_t ranks, const shared_memory_options& options) {
  constexpr std::int64_t smallest = 4096, usual = 128 << 10, largest = 1 << 30, all = 32 << 20;
  if (ranks < 1 || ranks > 1024)
    return fail(errc::invalid_argument, "a group of processes cannot have this size")
        .with_values("1 to 1024 ranks", detail::counted(ranks, "rank"));
  std::int64_t buffer = options.buffer_bytes;
  if (buffer == 0) buffer = std::clamp(all / ranks / ranks / 64 * 64, smallest, usual);
  if (buffer < smallest || buffer > largest)
    return fail(errc::invalid_argument, "shared_memory_options::buffer_bytes is out of range")
        .with_values(fmt::format("{} to {}", smallest, largest), fmt::to_string(buffer));
  auto memory =
      shared_memory::segment::make(ranks, static_cast<std::uint64_t>(buffer) / 64 * 64, options.read_peer_memory);
  if (!memory) return std::move(memory).error();
  std::string token = (*memory)->token();
  return shared_memory_group(*std::move(memory), std::move(token));
}

// The handles share an owner whose deleter makes the rank leave. Exchanges in progress own the engine itself.
result<shared_memory_communicator> shared_memory_communicator::join(std::string_view token, std::int32_t rank,
                                                                    const call_options& options,
                                                                    std::function<bool()> goes_on) {
  auto memory = shared_memory::segment::open(token);
  if (!memory) return std::move(memory).error();
  if (rank < 0 || rank >= (*memory)->size())
    return fail(errc::invalid_argument, fmt::format("rank {} cannot join the group", rank))
        .with_rank(rank)
        .with_values(fmt::format("0 to {}", (*memory)->size() - 1), fmt::to_string(rank));
  const auto engine = std::make_shared<shared_memory::engine>(*memory, rank, std::move(goes_on));
  SHARDMESH_TRY((*memory)->take_place(rank, engine->guard_word()));
  shared_memory_communicator made(
      std::shared_ptr<shared_memory::engine>(engine.get(), [engine](shared_memory::engine*) { engine->leave(); }));
  SHARDMESH_TRY(engine->meet(options));
  return made;
}

std::int32_t shared_memory_communicator::rank() const {
  return engine_->rank();
}

std::int32_t shared_memory_communicator::size() const {
  return engine_->size();
}

result<std::vector<std::vector<std::byte>>> shared_memory_communicator::all_gather(std::span<const std::byte> bytes,
                                                                                   const call_options& options) {
  return engine_->all_gather(bytes, options);
}

result<pending> shared_memory_communicator::start_exchange(std::span<const outgoing> sends,
                                                           std::span<const incoming> receives,
                                                           const call_options& options) {
  auto started = engine_->start(sends, receives, options);
  if (!started) return std::move(started).error();
  // Owns the engine, not the handles' owner, so that the rank can leave while exchanges are in progress.
  return pending(std::make_unique<exchange_operation>(engine_->shared_from_this(), *std::move(started)));
}

result<pending> shared_memory_communicator::all_gather_into(std::span<const std::byte> send,
                                                            std::span<std::byte> receive, const call_options& options) {
  return all_gather_into_by_messages(messages_of(*this), send, receive, options);
}

result<pending> shared_memory_communicator::all_to_all(std::span<const std::byte> send, std::span<std::byte> receive,
                                                       const call_options& options) {
  return all_to_all_by_messages(messages_of(*this), send, receive, options);
}

result<pending> shared_memory_communicator::reduce_scatter(std::span<const std::byte> send,
                                                           std::span<std::byte> receive, dtype type, reduce_op op,
                                                           const call_options& options) {
  return reduce_scatter_by_messages(messages_of(*this), send, receive, type, op, options);
}

result<pending> shared_memory_communicator::all_reduce(std::span<const std::byte> send, std::span<std::byte> receive,
                                                       dtype type, reduce_op op, const call_options& options) {
  return all_reduce_by_messages(messages_of(*this), send, receive, type, op, options);
}

result<pending> shared_memory_communicator::broadcast(std::span<const std::byte> send, std::span<std::byte> receive,
                                                      std::int32_t root, const call_options& options) {
  return broadcast_by_messages(messages_of(*this), send, receive, root, options);
}

void shared_memory_communicator::abort(const error& reason) {
  engine_->abort(reason);
}

object_numbers shared_memory_communicator::numbers() const {
  return engine_->numbers();
}

result<void> shared_memory_communicator::status() const {
  return engine_->status();
}

}  // namespace shardmesh
