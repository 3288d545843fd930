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
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.checkpoint_core;
import shardmesh.layout;
import shardmesh.transfer;
import :box_sets;
import :staged_round;

namespace shardmesh {
namespace {

constexpr std::int64_t alignment = 64;

// The part of a rank's box that is read in the round.
struct wanted_part {
  box where;
  const rank_box* of = nullptr;
};

std::vector<wanted_part> wanted_of(const merged_tensor& tensor, const round_tensor& read) {
  std::vector<wanted_part> made;
  if (read.is_whole) {
    for (const rank_box& one : tensor.boxes) made.push_back({one.where, &one});
    return made;
  }
  for (const read_piece& piece : read.pieces)
    for (const rank_box& one : tensor.boxes)
      if (auto part = intersect(piece.where, one.where)) made.push_back({*std::move(part), &one});
  std::sort(made.begin(), made.end(), [](const wanted_part& a, const wanted_part& b) {
    return std::tie(a.where, a.of->rank, a.of->part) < std::tie(b.where, b.of->rank, b.of->part);
  });
  return made;
}

// Collects fragments, and numbers the slots of each rank in the order in which they are added.
class numbered_side {
 public:
  numbered_side(const extents& shape, std::int32_t ranks)
      : made_(shape, owner_space::ranks), slots_(static_cast<std::size_t>(ranks), 0) {}
  void add(std::int32_t rank, const box& where) {
    made_.add(rank, slots_[static_cast<std::size_t>(rank)]++, where.offsets, where.sizes);
  }
  result<distribution> finish() { return made_.finish(); }

 private:
  distribution_builder made_;
  std::vector<std::int32_t> slots_;
};

}  // namespace

// The smaller dtype is sent.
dtype staged_rounds::staged_type(const merged_tensor& tensor) const {
  const dtype stored = load_.reader.contents().find(tensor.key)->type;
  return bits(stored) < bits(tensor.type) ? stored : tensor.type;
}

result<std::int64_t> staged_rounds::read(const reading_round& round) {
  const std::int32_t rank = load_.ranks.comm.rank();
  std::int64_t needed = 0, read = 0;
  const auto each_piece = [&](auto act) {
    for (std::size_t i = 0; i < round.size(); ++i) {
      const merged_tensor& tensor = load_.all.tensors[round[i].tensor];
      const dtype type = staged_type(tensor);
      for (const read_piece& piece : round[i].pieces)
        if (piece.reader == rank) act(i, tensor, type, piece, piece.where.volume() * item_bytes(type));
    }
  };
  const auto room = [](std::int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; };
  each_piece([&](std::size_t, const merged_tensor&, dtype, const read_piece&, std::int64_t bytes) {
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
  each_piece([&](std::size_t i, const merged_tensor& tensor, dtype type, const read_piece& piece, std::int64_t bytes) {
    staged_[i].push_back({at, type, {}, piece.where.sizes, contiguous_strides(piece.where.sizes)});
    at += room(bytes);
    const bool checks = load_.check && !checked_chunks_.contains(piece.chunk);
    if (checks) chunks.insert(piece.chunk);
    (checks ? checked : plain).push_back({tensor.key, piece.where, staged_[i].back()});
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

result<std::int64_t> staged_rounds::move(const reading_round& round) {
  const communicator_ref comm = load_.ranks.comm;
  std::vector<tensor_transfer> transfers;
  std::vector<std::string> keys;
  std::vector<const_tensor_binding> from;
  std::vector<tensor_binding> to;
  for (std::size_t i = 0; i < round.size(); ++i) {
    const merged_tensor& tensor = load_.all.tensors[round[i].tensor];
    const auto finished = [&](numbered_side& side) -> result<distribution> {
      auto made = side.finish();
      if (!made) return std::move(made).error().with_key(tensor.key);
      return made;
    };
    numbered_side read(tensor.shape, comm.size());
    for (const read_piece& piece : round[i].pieces) read.add(piece.reader, piece.where);
    SHARDMESH_TRY(const distribution source, finished(read));
    // Boxes that overlap without being equal cannot be on one side of a transfer.
    const std::vector<wanted_part> wanted = wanted_of(tensor, round[i]);
    std::vector<box> boxes;
    for (const wanted_part& part : wanted) boxes.push_back(part.where);
    const std::vector<std::size_t> layers = layers_of(tensor.shape.rank(), boxes);
    const std::size_t last = layers.empty() ? 0 : *std::max_element(layers.begin(), layers.end());
    for (std::size_t layer = 0; layer <= last; ++layer) {
      numbered_side side(tensor.shape, comm.size());
      tensor_binding memory;
      for (std::size_t k = 0; k < wanted.size(); ++k) {
        if (layers[k] != layer) continue;
        const rank_box& of = *wanted[k].of;
        side.add(of.rank, wanted[k].where);
        if (of.rank == comm.rank())
          memory.slots.push_back(subview(load_.memory_of(tensor, of), relative_to(wanted[k].where, of.where)));
      }
      SHARDMESH_TRY(distribution destination, finished(side));
      transfers.push_back({source, std::move(destination), staged_type(tensor), tensor.type});
      keys.push_back(tensor.key);
      from.push_back({{staged_[i].begin(), staged_[i].end()}});
      to.push_back(std::move(memory));
    }
  }
  const plan_options how{.memory_bytes = load_.message_bytes, .allow_narrowing = load_.options.allow_narrowing};
  SHARDMESH_TRY(transfer_plan moves, plan(std::move(transfers), how));
  SHARDMESH_TRY(executor runs, executor::make(std::move(moves), comm, std::move(keys),
                                              {.progress = load_.options.progress}, load_.ranks.call));
  SHARDMESH_TRY(runs.run(from, to, load_.ranks.call));
  return runs.received_bytes();
}

result<round_bytes> staged_rounds::run(const reading_round& round) {
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
