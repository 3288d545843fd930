// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.mapping;

import :element_pieces;
import :piece_chain;
import :piece_joiner;

namespace shardmesh {
namespace {

void append(value_stages& to, const value_stages& more) {
  to.insert(to.end(), more.begin(), more.end());
}

// Joins a piece of the second mapping with the target of the first one that is its source.
result<void> add_joined(const element_piece& piece, const target_elements& between, std::vector<element_piece>& to) {
  if (!between.equals.empty())
    return fail(errc::unsupported, "a later mapping rearranges a value that an earlier one joins")
        .with_hint("apply the mappings one after another");
  if (between.whole) {
    element_piece made = piece;
    made.source = *between.whole;
    made.values = between.values;
    append(made.values, piece.values);
    to.push_back(std::move(made));
    return {};
  }
  for (const element_piece& earlier : between.pieces) {
    SHARDMESH_TRY(std::vector<index_piece> pieces, joined(earlier.where, piece.where));
    for (index_piece& one : pieces) {
      element_piece made{earlier.source, std::move(one), earlier.values};
      append(made.values, piece.values);
      to.push_back(std::move(made));
    }
    if (static_cast<std::int64_t>(to.size()) > most_pieces) return too_many_pieces(fmt::format("{}", to.size()));
  }
  return {};
}

// Replaces a target that is a whole tensor of the first mapping by that tensor.
result<void> replace_whole(target_elements& target, std::span<const target_elements> first) {
  const target_elements& between = first[*target.whole];
  const std::vector<std::size_t> others = std::exchange(target.equals, between.equals);
  for (const std::size_t other : others) {
    const target_elements& equal = first[other];
    if (!between.whole || !equal.whole || !equal.values.empty() || !between.values.empty())
      return fail(errc::unsupported, "a later mapping joins values that an earlier one computes")
          .with_hint("apply the mappings one after another");
    target.equals.push_back(*equal.whole);
    target.equals.insert(target.equals.end(), equal.equals.begin(), equal.equals.end());
  }
  value_stages later = std::exchange(target.values, between.values);
  target.whole = between.whole;
  target.pieces = between.pieces;
  append(target.values, later);
  for (element_piece& piece : target.pieces) append(piece.values, later);
  if (!target.whole) target.values.clear();
  return {};
}

// Proves that the pieces have as many elements as the target.
result<void> check_volume(const target_elements& target) {
  std::int64_t covered = 0;
  for (const element_piece& piece : target.pieces) {
    std::int64_t count = 1;
    for (const index_loop& loop : piece.where.loops)
      if (loop.right.dimension >= 0) count *= loop.extent;  // at most the target's elements
    covered = checked_add(covered, count).value_or(-1);
    if (covered < 0) break;
  }
  const std::int64_t wanted = box::whole(target.shape).volume();
  if (covered == wanted) return {};
  return fail(errc::unsupported, "the mappings of a chain divide the repetitions of a tensor unevenly")
      .with_values(fmt::format("{} elements", wanted), fmt::format("{}", covered))
      .with_hint("apply the mappings one after another");
}

}  // namespace

result<std::vector<target_elements>> chained(std::span<const target_elements> first,
                                             std::vector<target_elements> second) {
  for (target_elements& target : second) {
    result<void> done;
    if (target.whole) {
      done = replace_whole(target, first);
    } else {
      std::vector<element_piece> pieces;
      for (const element_piece& piece : target.pieces) {
        if (piece.source == no_source)
          pieces.push_back(piece);
        else if (done)
          done = add_joined(piece, first[piece.source], pieces);
      }
      target.pieces = std::move(pieces);
    }
    if (done && !target.whole) done = check_volume(target);
    if (!done) return std::move(done).error().with_key(target.key);
  }
  return second;
}

}  // namespace shardmesh
