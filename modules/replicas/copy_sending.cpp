// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.replicas;

import shardmesh.comm;
import shardmesh.digest;
import shardmesh.layout;
import shardmesh.transfer;
import :copy_sending;
import :kept_catalog;
import :memory_step;
import :rank_round;

namespace shardmesh {
namespace {

// One side of the transfer, and this rank's memory of it. Each copy is a slot.
template <class Binding>
class copy_side {
 public:
  copy_side(std::int64_t total_bytes, communicator_ref comm)
      : made_({total_bytes}, owner_space::ranks),
        slots_(static_cast<std::size_t>(comm.size()), 0),
        rank_(comm.rank()) {}

  void add(std::span<const std::int32_t> ranks, std::int64_t offset, const tensor_view& mine) {
    for (const std::int32_t rank : ranks) {
      made_.add(rank, slots_[static_cast<std::size_t>(rank)]++, std::span(&offset, 1), mine.sizes);
      if (rank == rank_) memory.slots.push_back(mine);
    }
  }
  result<distribution> finish() { return made_.finish(); }

  Binding memory;

 private:
  distribution_builder made_;
  std::vector<std::int32_t> slots_;  // per rank, the number of its slots so far
  std::int32_t rank_ = 0;
};

// The bytes of all chunks that any rank receives.
result<std::int64_t> bytes_to_send(std::span<const numbered_chunk> chunks, std::span<const chunk_route> routes) {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (routes[i].receivers.empty()) continue;
    const auto next = checked_add(total, chunks[i].chunk->size_bytes);
    if (!next) return fail(errc::overflow, "the copies of the step do not fit in 64 bits");
    total = *next;
  }
  return total;
}

}  // namespace

bool is_among(std::int32_t rank, std::span<const std::int32_t> ranks) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// The step is one tensor of bytes, and each chunk is a box of it.
result<sent_copies> send_copies(memory_step& step, std::span<const chunk_route> routes, const rank_round& round,
                                const std::function<void(std::int64_t)>& progress) {
  const std::vector<numbered_chunk> chunks = chunks_of(*step.catalog);
  SHARDMESH_TRY(const std::int64_t total, bytes_to_send(chunks, routes));
  if (total == 0) return sent_copies();
  copy_side<const_tensor_binding> from(total, round.comm);
  copy_side<tensor_binding> to(total, round.comm);
  std::int64_t offset = 0;
  auto copy = step.copies.begin();
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const bool is_kept = copy != step.copies.end() && copy->chunk == i;
    const std::span<std::byte> bytes = is_kept ? step.bytes_of(*copy++) : std::span<std::byte>();
    if (routes[i].receivers.empty()) continue;
    const std::int64_t size = chunks[i].chunk->size_bytes;
    const tensor_view mine{bytes.data(), dtype::uint8, {}, {size}, {1}};
    from.add(routes[i].senders, offset, mine);
    to.add(routes[i].receivers, offset, mine);
    offset += size;
  }
  SHARDMESH_TRY(distribution held, from.finish());
  SHARDMESH_TRY(distribution wanted, to.finish());
  std::vector<tensor_transfer> one;
  one.push_back({std::move(held), std::move(wanted), dtype::uint8, dtype::uint8});
  SHARDMESH_TRY(executor runs,
                executor::make(plan(std::move(one)), round.comm, {fmt::format("(step {})", step.catalog->step)},
                               {.progress = progress}, round.call));
  SHARDMESH_TRY(runs.run(std::span(&from.memory, 1), std::span(&to.memory, 1), round.call));
  return sent_copies{runs.sent_bytes(), runs.received_bytes()};
}

result<void> check_received(const memory_step& step, std::span<const chunk_route> routes, std::int32_t rank) {
  const std::vector<numbered_chunk> chunks = chunks_of(*step.catalog);
  for (const chunk_copy& copy : step.copies) {
    if (!is_among(rank, routes[copy.chunk].receivers)) continue;
    const digest128 found = xxh3(step.bytes_of(copy));
    const kept_chunk& expected = *chunks[copy.chunk].chunk;
    if (found == expected.digest) continue;
    return fail(errc::checksum_mismatch, "a received copy does not have the digest of its sender")
        .with_key(chunks[copy.chunk].tensor->key)
        .with_box(expected.where)
        .with_values(to_hex(expected.digest), to_hex(found))
        .with_hint("keep the step again");
  }
  return {};
}

}  // namespace shardmesh
