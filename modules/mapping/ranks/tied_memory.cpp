// SPDX-License-Identifier: Apache-2.0
// Tied tensors of a mapping on one rank: their comparison with their partners, and their copies.
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.mapping;

import shardmesh.layout;
import shardmesh.transfer;
import :mapped_memory;
import :mapped_moves;

namespace shardmesh {
namespace {

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

}  // namespace

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

}  // namespace shardmesh
