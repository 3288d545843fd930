// SPDX-License-Identifier: Apache-2.0
// Makes the transfers of a mapping. The tracing of several mappings is in `traced_mapping.cpp`.
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.mapping;

import shardmesh.layout;
import shardmesh.transfer;
import :element_pieces;
import :mapped_moves;
import :piece_sides;

namespace shardmesh {
namespace {

// The piece of a target that equals its source.
index_piece whole_piece(const extents& shape) {
  index_piece made{0, 0, extents::filled(shape.rank(), 0), extents::filled(shape.rank(), 0), {}};
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    const index_loop::step step{static_cast<std::int32_t>(d), 1};
    if (shape[d] != 1) made.loops.push_back({shape[d], step, step});
  }
  return made;
}

bool takes_one_of_several(const index_piece& piece) {
  return std::any_of(piece.loops.begin(), piece.loops.end(),
                     [](const index_loop& loop) { return loop.left.dimension < 0 || loop.right.dimension < 0; });
}

// " by x + 1, x * 2", or nothing.
std::string text_of(const value_stages& values) {
  std::string made;
  for (const std::vector<value_step>& stage : values)
    for (const value_step& step : stage) made += fmt::format("{}{}", made.empty() ? " by " : ", ", to_string(step));
  return made;
}

// Layers of one shape and layout share the sides of their pieces, so that the planner sees equal transfers.
class side_cache {
 public:
  result<distribution> source(const index_piece& piece, const distribution& held) {
    std::vector<std::int64_t> key = key_of(piece, piece.left_origin, held);
    if (const auto known = sources_.find(key); known != sources_.end()) return known->second;
    SHARDMESH_TRY(distribution made, source_side(piece, held));
    return sources_.emplace(std::move(key), std::move(made)).first->second;
  }

  result<target_side> target(const index_piece& piece, const distribution& held) {
    std::vector<std::int64_t> key = key_of(piece, piece.right_origin, held);
    if (const auto known = targets_.find(key); known != targets_.end()) return known->second;
    SHARDMESH_TRY(target_side made, side_of_target(piece, held));
    return targets_.emplace(std::move(key), std::move(made)).first->second;
  }

 private:
  static std::vector<std::int64_t> key_of(const index_piece& piece, const extents& origin, const distribution& held) {
    std::vector<std::int64_t> made(origin.begin(), origin.end());
    for (const index_loop& loop : piece.loops)
      made.insert(made.end(),
                  {loop.extent, loop.left.dimension, loop.left.stride, loop.right.dimension, loop.right.stride});
    const digest128 digest = held.description_digest();
    made.insert(made.end(), {static_cast<std::int64_t>(digest.low), static_cast<std::int64_t>(digest.high)});
    return made;
  }

  std::map<std::vector<std::int64_t>, distribution> sources_;
  std::map<std::vector<std::int64_t>, target_side> targets_;
};

class move_maker {
 public:
  move_maker(std::span<const held_tensor> from, std::span<const held_tensor> to, bool allow_narrowing)
      : from_(from), to_(to), allow_narrowing_(allow_narrowing) {}

  result<void> add(const target_elements& made, std::size_t target) {
    if (box::whole(made.shape).is_empty()) return {};
    if (made.whole && made.values.empty() && made.equals.empty()) {
      const held_tensor &source = from_[*made.whole], &wanted = to_[target];
      SHARDMESH_TRY(check_cast(source.type, wanted.type, allow_narrowing_));
      moves_.wholes.push_back({*made.whole, target, moves_.transfers.size()});
      add_transfer({source.where, wanted.where, source.type, wanted.type}, *made.whole, target, {});
      return {};
    }
    SHARDMESH_TRY(check_computed(made, to_[target]));
    if (!made.whole) {
      for (const element_piece& piece : made.pieces) SHARDMESH_TRY(add(piece, {}, made.type, target));
      return {};
    }
    return add({*made.whole, whole_piece(made.shape), made.values}, made.equals, made.type, target);
  }

  mapped_moves take() && { return std::move(moves_); }

 private:
  result<void> check_computed(const target_elements& made, const held_tensor& wanted) const {
    if (wanted.where.reduction() != reduce_op::none)
      return fail(errc::unsupported, "a tensor that a mapping computes cannot be a Partial")
          .with_hint("choose a layout without Partial for the target");
    if (bits(wanted.type) == 0 || bits(wanted.type) % 8 != 0)
      return fail(errc::unsupported, "a mapping cannot compute a tensor of this dtype")
          .with_values("a dtype of whole bytes", std::string(name(wanted.type)));
    if (made.type == dtype::undefined) return {};  // filler only
    return check_cast(made.type, wanted.type, allow_narrowing_);
  }

  result<void> add(element_piece piece, const std::vector<std::size_t>& equals, dtype type, std::size_t target) {
    const held_tensor& wanted = to_[target];
    piece_move made{target, type == dtype::undefined ? wanted.type : type, std::move(piece), {}, 0, {}, false};
    if (made.piece.source == no_source) {  // filler has no transfer
      moves_.pieces.push_back(std::move(made));
      return {};
    }
    SHARDMESH_TRY(made.side, sides_.target(made.piece.where, wanted.where));
    made.transfer = moves_.transfers.size();
    made.sources.push_back(made.piece.source);
    made.sources.insert(made.sources.end(), equals.begin(), equals.end());
    made.is_staged = !made.piece.values.empty() || !equals.empty() || takes_one_of_several(made.piece.where);
    for (const std::size_t number : made.sources) {
      const held_tensor& source = from_[number];
      SHARDMESH_TRY(const distribution where, sides_.source(made.piece.where, source.where));
      add_transfer({where, made.side.where, source.type, made.is_staged ? source.type : wanted.type}, number, target,
                   made.piece.values);
    }
    moves_.pieces.push_back(std::move(made));
    return {};
  }

  void add_transfer(tensor_transfer transfer, std::size_t source, std::size_t target, const value_stages& values) {
    moves_.transfers.push_back(std::move(transfer));
    moves_.keys.push_back(fmt::format("{} -> {}{}", from_[source].key, to_[target].key, text_of(values)));
  }

  std::span<const held_tensor> from_, to_;
  bool allow_narrowing_;
  side_cache sides_;
  mapped_moves moves_;
};

}  // namespace

result<mapped_moves> moves_between(std::span<const held_tensor> from, std::span<const held_tensor> to,
                                   const std::vector<target_elements>& made, std::vector<tied_copy> copies,
                                   bool allow_narrowing) {
  detail::problem_list problems;
  std::vector<std::string_view> made_keys;
  for (const target_elements& one : made) made_keys.push_back(one.key);
  std::unordered_map<std::string_view, std::size_t> made_at, wanted_at;
  for (std::size_t i = 0; i < made.size(); ++i) made_at.emplace(made[i].key, i);
  std::unordered_set<std::size_t> copied;
  for (const tied_copy& one : copies) copied.insert(one.tied);
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (!wanted_at.emplace(to[i].key, i).second)
      problems.add(fail(errc::duplicate_key, "two targets have the same name").with_key(to[i].key));
    else if (!made_at.contains(to[i].key) && !copied.contains(i))
      problems.add(fail(errc::missing_key, "the mapping does not make this target from the sources")
                       .with_key(to[i].key)
                       .with_hint(problems.named.size() < most_suggestions
                                      ? did_you_mean(nearest_key(made_keys, to[i].key))
                                      : ""));
  }
  move_maker maker(from, to, allow_narrowing);
  for (const target_elements& one : made) {
    const auto found = wanted_at.find(one.key);
    if (found == wanted_at.end()) {
      problems.add(fail(errc::missing_key, "the mapping makes this tensor, and no target has its name")
                       .with_key(one.key)
                       .with_hint("add a target on every rank, or ignore the sources in the mapping"));
      continue;
    }
    const held_tensor& wanted = to[found->second];
    result<void> done;
    if (wanted.where.global_shape() != one.shape)
      done = fail(errc::shape_mismatch, "the target has another shape than the tensor that the mapping makes")
                 .with_values(to_string(one.shape), to_string(wanted.where.global_shape()));
    else
      done = maker.add(one, found->second);
    if (!done) problems.add(std::move(done).error().with_key(one.key));
  }
  SHARDMESH_TRY(std::move(problems).outcome());
  mapped_moves moves = std::move(maker).take();
  moves.copies = std::move(copies);
  return moves;
}

result<void> add_ties(mapped_moves& moves, std::span<const held_tensor> from, const traced_mapping& through) {
  if (through.untraced_tie) return *through.untraced_tie;
  for (const tied_sources& one : through.ties) {
    const held_tensor &tied = from[one.tied], &partner = from[one.partner];
    if (bits(tied.type) == 0 || bits(tied.type) % 8 != 0) continue;  // not compared between ranks
    tie_move made{one.tied, one.partner, {}};
    if (tied.where != partner.where) {
      if (tied.where.reduction() != reduce_op::none || partner.where.reduction() != reduce_op::none)
        return fail(errc::unsupported,
                    fmt::format("the mapping ties this tensor to {}, and Partial tensors in two layouts cannot be "
                                "compared",
                                escaped(partner.key)))
            .with_key(tied.key)
            .with_hint("combine the terms first, or give both tensors one layout");
      made.transfer = moves.transfers.size();
      moves.transfers.push_back({partner.where, tied.where, partner.type, tied.type});
      moves.keys.push_back(fmt::format("{} = {}", tied.key, partner.key));
    }
    moves.ties.push_back(made);
  }
  return {};
}

}  // namespace shardmesh
