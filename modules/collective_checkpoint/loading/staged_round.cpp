// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.checkpoint_core;
import shardmesh.layout;
import shardmesh.transfer;
import :rank_side;
import :staged_round;

namespace shardmesh {
namespace {

constexpr std::int64_t alignment = 64;

}  // namespace

const tensor_entry& staged_rounds::stored_of(const round_tensor_share& tensor) const {
  return load_.reader.contents().tensors[tensor.stored];
}

// The smaller dtype is sent.
dtype staged_rounds::staged_type(const round_tensor_share& tensor) const {
  const dtype stored = stored_of(tensor).type;
  return bits(stored) < bits(tensor.type) ? stored : tensor.type;
}

result<std::int64_t> staged_rounds::read(const round_share& round) {
  const std::int32_t rank = load_.ranks.comm.rank();
  std::int64_t needed = 0, read = 0;
  const auto each_piece = [&](auto act) {
    for (std::size_t i = 0; i < round.size(); ++i) {
      const dtype type = staged_type(round[i]);
      for (const piece_share& piece : round[i].pieces)
        if (piece.reader == rank) act(i, type, piece, piece.where.volume() * item_bytes(type));
    }
  };
  const auto room = [](std::int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; };
  each_piece([&](std::size_t, dtype, const piece_share&, std::int64_t bytes) {
    needed += room(bytes);
    read += bytes;
  });
  if (needed > capacity_) {
    memory_.reset();
    memory_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(needed));
    capacity_ = needed;
  }
  std::vector<load_request> plain, checked;
  std::set<std::int32_t> chunks;
  std::byte* at = memory_.get();
  each_piece([&](std::size_t i, dtype type, const piece_share& piece, std::int64_t bytes) {
    staged_[i].push_back({at, type, {}, piece.where.sizes, contiguous_strides(piece.where.sizes)});
    at += room(bytes);
    const bool checks = load_.check && !checked_chunks_.contains(piece.chunk);
    if (checks) chunks.insert(piece.chunk);
    (checks ? checked : plain).push_back({stored_of(round[i]).key, piece.where, staged_[i].back()});
  });
  load_options options = load_.options;
  options.progress = {};
  options.on_arrival = {};
  options.check = true;
  if (!checked.empty()) SHARDMESH_TRY(load(load_.reader, checked, options));
  checked_chunks_.merge(chunks);
  options.check = false;
  SHARDMESH_TRY(load(load_.reader, plain, options));
  return read;
}

result<std::int64_t> staged_rounds::move(const round_share& round) {
  const communicator_ref comm = load_.ranks.comm;
  std::vector<std::string> keys;
  std::vector<const_tensor_binding> from;
  std::vector<tensor_binding> to;
  const auto planned = [&]() -> result<transfer_plan> {
    std::vector<tensor_transfer> transfers;
    for (std::size_t i = 0; i < round.size(); ++i) {
      const tensor_entry& stored = stored_of(round[i]);
      rank_side read(stored.shape);
      for (const piece_share& piece : round[i].pieces) read.add(piece.reader, piece.where);
      SHARDMESH_TRY(const distribution source, read.finish(stored.key));
      // Boxes that overlap without being equal cannot be on one side of a transfer.
      std::vector<rank_side> sides;
      std::vector<tensor_binding> memory(round[i].layers);
      for (std::size_t layer = 0; layer < round[i].layers; ++layer) sides.emplace_back(stored.shape);
      for (const piece_share& piece : round[i].pieces)
        for (const wanted_part& part : piece.wanted) {
          sides[part.layer].add(part.rank, part.where);
          if (part.rank == comm.rank()) memory[part.layer].slots.push_back(load_.memory_of(round[i].stored, part));
        }
      for (std::size_t layer = 0; layer < round[i].layers; ++layer) {
        SHARDMESH_TRY(distribution destination, sides[layer].finish(stored.key));
        transfers.push_back({source, std::move(destination), staged_type(round[i]), round[i].type});
        keys.push_back(stored.key);
        from.push_back({{staged_[i].begin(), staged_[i].end()}});
        to.push_back(std::move(memory[layer]));
      }
    }
    return plan(std::move(transfers),
                {.memory_bytes = load_.message_bytes, .allow_narrowing = load_.options.allow_narrowing});
  };
  auto moves = planned();  // the other ranks get this rank's error from the next line
  SHARDMESH_TRY(executor runs,
                executor::make(std::move(moves), comm, std::move(keys),
                               {.progress = load_.options.progress, .whole_plan = false}, load_.ranks.call));
  SHARDMESH_TRY(runs.run(from, to, load_.ranks.call));
  return runs.received_bytes();
}

result<round_bytes> staged_rounds::run(const round_share& round) {
  round_bytes bytes;
  staged_.assign(round.size(), {});
  const auto mine = guarded([&]() -> result<void> {
    SHARDMESH_TRY(bytes.read, read(round));
    return {};
  });
  SHARDMESH_TRY(load_.ranks.settle(mine));
  SHARDMESH_TRY(bytes.received, move(round));
  return bytes;
}

}  // namespace shardmesh
