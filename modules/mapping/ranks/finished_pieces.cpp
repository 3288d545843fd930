// SPDX-License-Identifier: Apache-2.0
// The work that follows the transfers of a mapping on one rank: comparisons, operations on values, and copies.
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.mapping;

import shardmesh.layout;
import shardmesh.transfer;
import :element_pieces;
import :mapped_memory;
import :mapped_moves;
import :piece_sides;

namespace shardmesh {
namespace {

// The dimensions of a staged box without the source's repetitions, which lead.
extents block_of(const box& where, std::size_t repeated) {
  extents made;
  for (std::size_t d = repeated; d < where.rank(); ++d) made.push_back(where.sizes[d]);
  return made;
}

// The elements of a place, in memory that has each of them once, row-major.
const_tensor_view spread(const std::byte* data, dtype type, const extents& block, std::size_t repeated,
                         const tensor_view& place) {
  const_tensor_view made{data, type, {}, place.sizes, extents::filled(place.sizes.rank(), 0)};
  const extents strides = contiguous_strides(block);
  for (std::size_t d = 0; d < block.rank(); ++d) made.strides[repeated + d] = strides[d];
  return made;
}

// The place of the first byte that differs, in the target.
box differing_element(const piece_move& move, const box& where, const extents& block, const std::byte* a,
                      const std::byte* b) {
  const std::size_t repeated = where.rank() - block.rank();
  const auto bytes = static_cast<std::size_t>(numel(block) * item_bytes(move.type));
  const auto apart = std::mismatch(a, a + bytes, b).first - a;
  const std::int64_t element = static_cast<std::int64_t>(apart) / item_bytes(move.type);
  const extents strides = contiguous_strides(block);
  extents index = where.offsets;
  for (std::size_t d = 0; d < block.rank(); ++d) index[repeated + d] += element / strides[d] % block[d];
  return element_of_target(move.piece.where, index);
}

// Applies the operations to a staged box.
result<void> apply_values(const piece_move& move, const box& where, const tensor_view& block) {
  const std::size_t repeated = where.rank() - block.sizes.rank();
  for (const std::vector<value_step>& steps : move.piece.values) {
    auto done = apply_steps(steps, block);
    if (done) continue;
    error why = std::move(done).error();
    for (box& one : why.boxes) {
      extents index = where.offsets;
      for (std::size_t d = 0; d < one.rank(); ++d) index[repeated + d] += one.offsets[d];
      one = element_of_target(move.piece.where, index);
    }
    return why;
  }
  return {};
}

}  // namespace

// Compares the repetitions of a slot, and the sources that must be equal, and applies the operations on values.
// `copies` has the slot's tensor of each source.
result<void> mapped_memory::finish_slot(const piece_move& move, const box& where,
                                        std::span<host_tensor* const> copies) const {
  const extents block = block_of(where, space_of(move.piece.where).repeated);
  const auto bytes = static_cast<std::size_t>(numel(block) * item_bytes(move.type));
  std::byte* const first = copies[0]->bytes().data();
  for (std::size_t at = bytes; at < copies[0]->bytes().size(); at += bytes)
    if (std::memcmp(first, first + at, bytes) != 0)
      return fail(errc::disagreement, "the repetitions of an element differ, so it has no single value")
          .with_box(differing_element(move, where, block, first, first + at));
  for (std::size_t s = 1; s < copies.size(); ++s) {
    const std::byte* const other = copies[s]->bytes().data();
    if (std::memcmp(first, other, bytes) != 0)
      return fail(errc::disagreement, fmt::format("the values of '{}' and '{}', which the mapping joins, differ",
                                                  from_[move.sources[0]].key, from_[move.sources[s]].key))
          .with_box(differing_element(move, where, block, first, other))
          .with_hint("make the values equal, or leave the optimizer out");
  }
  return apply_values(move, where, {first, move.type, {}, block, contiguous_strides(block)});
}

result<void> mapped_memory::finish(const piece_move& move, piece_memory& mine) const {
  if (move.sources.empty()) {
    alignas(16) std::array<std::byte, 16> zero{};  // an element of any dtype
    SHARDMESH_TRY(apply_values(move, {}, {zero.data(), move.type, {}, {}, {}}));
    for (const target_place& place : mine.places)
      SHARDMESH_TRY(copy_between(place.memory, spread(zero.data(), move.type, {}, 0, place.memory)));
    return {};
  }
  if (!move.is_staged) return {};
  const std::size_t repeated = space_of(move.piece.where).repeated;
  std::size_t finished = 0;  // slots are numbered in the order of their first places
  for (const target_place& place : mine.places) {
    const auto slot = static_cast<std::size_t>(place.slot);
    if (slot == finished) {
      std::vector<host_tensor*> copies;
      for (std::vector<host_tensor>& staged : mine.staged) copies.push_back(&staged[slot]);
      SHARDMESH_TRY(finish_slot(move, place.where, copies));
      ++finished;
    }
    const std::byte* const data = mine.staged[0][slot].bytes().data();
    SHARDMESH_TRY(
        copy_between(place.memory, spread(data, move.type, block_of(place.where, repeated), repeated, place.memory)));
  }
  return {};
}

result<void> mapped_memory::finish() {
  for (std::size_t tie = 0; tie < ties_.size(); ++tie) SHARDMESH_TRY(compare_tie(tie));
  std::vector<bool> is_computed(to_.size(), false);
  for (std::size_t p = 0; p < pieces_.size(); ++p) {
    const piece_move& move = moves_.pieces[p];
    is_computed[move.target] = true;
    if (auto done = finish(move, pieces_[p]); !done)
      return std::move(done).error().with_key(to_[move.target].key).with_rank(rank_);
  }
  for (std::size_t t = 0; t < to_.size(); ++t)
    if (is_computed[t] && to_memory_[t].written) to_memory_[t].written();
  for (const tied_copy& one : moves_.copies)
    if (auto done = copy_tied(one); !done) return std::move(done).error().with_key(to_[one.tied].key).with_rank(rank_);
  return {};
}

}  // namespace shardmesh
