// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
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

bool is_same_memory(const const_tensor_view& a, const const_tensor_view& b) {
  return a.data == b.data && a.sizes == b.sizes && a.strides == b.strides;
}

// Bytes of each of two strided or remote tensors that are compared at a time.
constexpr std::int64_t compared_bytes = std::int64_t{4} << 20;

// Compares two views of equal sizes and dtypes, bit for bit. Precondition: they are not empty.
result<bool> are_equal(const const_tensor_view& a, const const_tensor_view& b) {
  if (is_same_memory(a, b)) return true;
  const std::int64_t bytes = numel(a) * item_bytes(a.type);
  const bool is_plain =
      is_contiguous(a) && is_contiguous(b) && check_host_memory(a).has_value() && check_host_memory(b).has_value();
  if (is_plain) return std::memcmp(a.data, b.data, static_cast<std::size_t>(bytes)) == 0;
  const std::int64_t rows = a.sizes.rank() == 0 ? 1 : a.sizes[0];
  const std::int64_t step = std::max(std::int64_t{1}, compared_bytes / (bytes / rows));
  for (std::int64_t begin = 0; begin < rows; begin += step) {
    box part = box::whole(a.sizes);
    if (part.rank() > 0) part.offsets[0] = begin, part.sizes[0] = std::min(step, rows - begin);
    SHARDMESH_TRY(host_tensor left, host_tensor::make(a.type, part.sizes));
    SHARDMESH_TRY(host_tensor right, host_tensor::make(a.type, part.sizes));
    SHARDMESH_TRY(copy_between(view_of(left), subview(a, part)));
    SHARDMESH_TRY(copy_between(view_of(right), subview(b, part)));
    if (std::memcmp(left.bytes().data(), right.bytes().data(), left.bytes().size()) != 0) return false;
  }
  return true;
}

// Checks that this rank's slots hold its fragments, as an executor does. Views of a part of a slot could not be made
// otherwise.
template <tensor_view_type View>
result<void> check_slots(const distribution& where, dtype type, const basic_tensor_binding<View>& memory,
                         owner_id rank) {
  if (memory.problem) return *memory.problem;
  std::map<std::int32_t, box> needed;  // per slot: from 0 to the end of its fragments
  where.fragments_of(rank, [&](const fragment& f) {
    if (f.where.is_empty()) return true;
    const extents none = extents::filled(f.where.rank(), 0);
    extents& ends = needed.emplace(f.slot, box{none, none}).first->second.sizes;
    for (std::size_t d = 0; d < ends.rank(); ++d) ends[d] = std::max(ends[d], f.local_offsets[d] + f.where.sizes[d]);
    return true;
  });
  for (const auto& entry : needed) {
    const std::int32_t slot = entry.first;
    const box& need = entry.second;
    const auto problem = [&](errc code, const std::string& what) {
      return fail(code, fmt::format("slot {} {}", slot, what)).with_box(need);
    };
    if (slot < 0 || static_cast<std::size_t>(slot) >= memory.slots.size())
      return problem(errc::invalid_argument, "is not bound")
          .with_values(fmt::format("{} or more slots", slot + 1), fmt::format("{}", memory.slots.size()));
    const View& view = memory.slots[static_cast<std::size_t>(slot)];
    if (view.data == nullptr) return problem(errc::invalid_argument, "has no memory");
    if (view.type != type)
      return problem(errc::dtype_mismatch, "has another dtype")
          .with_values(std::string(name(type)), std::string(name(view.type)));
    const bool may_be_larger = memory.room == slot_room::larger;
    bool fits = view.sizes.rank() == need.rank() && view.strides.rank() == need.rank();
    for (std::size_t d = 0; fits && d < need.rank(); ++d) fits = need.sizes[d] <= view.sizes[d];
    if (!fits)
      return problem(errc::shape_mismatch, "does not hold its fragments")
          .with_values(fmt::format("{}{}", to_string(need.sizes), may_be_larger ? " or larger" : ""),
                       to_string(view.sizes));
    if (!may_be_larger && view.sizes != need.sizes)
      return problem(errc::shape_mismatch, "is larger than this rank's part of the tensor")
          .with_values(to_string(need.sizes), to_string(view.sizes))
          .with_hint("bind only the part, or pass slot_room::larger");
  }
  return {};
}

}  // namespace

mapped_memory::mapped_memory(const mapped_moves& moves, std::span<const held_tensor> from,
                             std::span<const held_tensor> to, std::span<const const_tensor_binding> from_memory,
                             std::span<const tensor_binding> to_memory, owner_id rank)
    : moves_(moves),
      from_(from),
      to_(to),
      from_memory_(from_memory),
      to_memory_(to_memory),
      rank_(rank),
      from_problems_(from.size()),
      to_problems_(to.size()),
      sources_(moves.transfers.size()),
      destinations_(moves.transfers.size()) {
  for (std::size_t i = 0; i < from.size(); ++i)
    if (auto done = check_slots(from[i].where, from[i].type, from_memory[i], rank); !done)
      from_problems_[i] = std::move(done).error().with_key(from[i].key);
  for (std::size_t i = 0; i < to.size(); ++i)
    if (auto done = check_slots(to[i].where, to[i].type, to_memory[i], rank); !done)
      to_problems_[i] = std::move(done).error().with_key(to[i].key);
  for (const whole_move& move : moves.wholes) bind_whole(move);
  pieces_.reserve(moves.pieces.size());
  for (const piece_move& move : moves.pieces) pieces_.push_back(bind_piece(move));
  for (const tie_move& move : moves.ties) bind_tie(move);
}

void mapped_memory::bind_whole(const whole_move& move) {
  sources_[move.transfer] = from_memory_[move.source];
  destinations_[move.transfer] = to_memory_[move.target];
}

void mapped_memory::bind_tie(const tie_move& move) {
  std::vector<host_tensor>& staged = ties_.emplace_back();
  if (!move.transfer) return;
  sources_[*move.transfer] = from_memory_[move.partner];
  tensor_binding& bound = destinations_[*move.transfer];
  bound.problem = from_problems_[move.tied];
  if (bound.problem) return;
  bound.room = from_memory_[move.tied].room;
  for (const const_tensor_view& slot : from_memory_[move.tied].slots) {
    auto made = host_tensor::make(slot.type, slot.sizes);
    if (!made) {
      bound.problem = std::move(made).error().with_key(from_[move.tied].key);
      return;
    }
    staged.push_back(*std::move(made));
    bound.slots.push_back(view_of(staged.back()));
  }
}

mapped_memory::piece_memory mapped_memory::bind_piece(const piece_move& move) {
  piece_memory mine;
  const index_piece& piece = move.piece.where;
  for (std::size_t s = 0; s < move.sources.size(); ++s) {
    const std::size_t source = move.sources[s];
    const_tensor_binding& bound = sources_[move.transfer + s];
    bound.problem = from_problems_[source];
    if (!bound.problem) bound.slots = source_slots(piece, from_[source].where, rank_, from_memory_[source].slots);
  }
  if (const auto& problem = to_problems_[move.target]) {
    for (std::size_t s = 0; s < move.sources.size(); ++s) destinations_[move.transfer + s].problem = problem;
    return mine;
  }
  mine.places = places_of_target(piece, move.side, to_[move.target].where, rank_, to_memory_[move.target].slots);
  if (move.is_staged) {
    if (auto done = stage(move, mine); !done)
      destinations_[move.transfer].problem = std::move(done).error().with_key(to_[move.target].key);
  } else if (!move.sources.empty()) {
    for (const target_place& place : mine.places) destinations_[move.transfer].slots.push_back(place.memory);
  }
  return mine;
}

// Makes the memory of the transfers, one tensor for each slot.
result<void> mapped_memory::stage(const piece_move& move, piece_memory& mine) {
  std::vector<const box*> slots;
  for (const target_place& place : mine.places)
    if (static_cast<std::size_t>(place.slot) == slots.size()) slots.push_back(&place.where);  // its first place
  for (std::size_t s = 0; s < move.sources.size(); ++s) {
    std::vector<host_tensor>& staged = mine.staged.emplace_back();
    for (const box* const where : slots) {
      SHARDMESH_TRY(host_tensor made, host_tensor::make(move.type, where->sizes));
      staged.push_back(std::move(made));
    }
    for (host_tensor& one : staged) destinations_[move.transfer + s].slots.push_back(view_of(one));
  }
  return {};
}

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

// Compares the fragments of a tied tensor with the partner's elements.
result<void> mapped_memory::compare_tie(std::size_t number) const {
  const tie_move& move = moves_.ties[number];
  for (const std::size_t side : {move.tied, move.partner})
    if (from_problems_[side]) return *from_problems_[side];
  result<void> done;
  from_[move.tied].where.fragments_of(rank_, [&](const fragment& f) {
    if (f.where.is_empty()) return true;
    const auto slot = static_cast<std::size_t>(f.slot);
    const box part{f.local_offsets, f.where.sizes};
    const auto compare = [&]() -> result<void> {
      const const_tensor_view mine = subview(from_memory_[move.tied].slots[slot], part);
      const const_tensor_view other = move.transfer ? subview(view_of(ties_[number][slot]), part)
                                                    : subview(from_memory_[move.partner].slots[slot], part);
      SHARDMESH_TRY(const bool is_equal, are_equal(mine, other));
      if (is_equal) return {};
      return fail(errc::disagreement, fmt::format("the mapping ties this tensor to {}, and their values differ",
                                                  escaped(from_[move.partner].key)))
          .with_key(from_[move.tied].key)
          .with_rank(rank_)
          .with_box(f.where)
          .with_hint("use a mapping that keeps both tensors");
    };
    done = compare();
    return done.has_value();
  });
  return done;
}

// Fills a tied target from its partner, unless the two share their memory.
result<void> mapped_memory::copy_tied(const tied_copy& one) const {
  for (const std::size_t side : {one.tied, one.partner})
    if (to_problems_[side]) return *to_problems_[side];
  result<void> done;
  to_[one.tied].where.fragments_of(rank_, [&](const fragment& f) {
    if (f.where.is_empty()) return true;
    const auto slot = static_cast<std::size_t>(f.slot);
    const box part{f.local_offsets, f.where.sizes};
    const tensor_view tied = subview(to_memory_[one.tied].slots[slot], part);
    const tensor_view partner = subview(to_memory_[one.partner].slots[slot], part);
    if (!is_same_memory(tied, partner)) done = copy_between(tied, partner);
    return done.has_value();
  });
  if (done && to_memory_[one.tied].written) to_memory_[one.tied].written();
  return done;
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
