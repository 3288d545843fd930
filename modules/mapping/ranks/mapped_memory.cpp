// SPDX-License-Identifier: Apache-2.0
// Binds this rank's memory to the transfers of a mapping. Bodies of the rest: `finished_pieces.cpp`, `tied_memory.cpp`.
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
          .with_hint("bind only the part; in C++, slot_room::larger accepts a larger buffer");
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

}  // namespace shardmesh
