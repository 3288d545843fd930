// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>
module shardmesh.mapping;

import :gather;

namespace shardmesh {
namespace {

// A source box of at most this many bytes is read whole, including elements that are not needed.
constexpr std::int64_t most_gap_bytes = std::int64_t{64} << 10;
// A larger one is read without its gaps, unless the parts between them have fewer bytes than this.
constexpr std::int64_t least_step_bytes = 256;
constexpr std::int64_t most_staging_bytes = std::int64_t{4} << 20;

// The memory and the reader of one call of `gather`.
class gatherer {
 public:
  gatherer(const index_piece& piece, const box& part, const tensor_view& to, box_reader read)
      : piece_(piece), to_(to), read_(read), item_(item_bytes(to.type)) {
    for (const index_loop& loop : piece.loops)
      memory_strides_.push_back(loop.right.dimension < 0
                                    ? 0
                                    : to.strides[static_cast<std::size_t>(loop.right.dimension)] * loop.right.stride);
    for (std::size_t d = 0; d < part.rank(); ++d) origin_ += (piece.right_origin[d] - part.offsets[d]) * to.strides[d];
  }

  result<void> copy(std::vector<loop_range>& ranges) {
    const std::size_t rank = piece_.left_origin.rank();
    box from{piece_.left_origin, extents::filled(rank, 1)};
    extents counts = extents::filled(rank, 1);
    for (std::size_t l = 0; l < ranges.size(); ++l) {
      const auto& [dimension, stride] = piece_.loops[l].left;
      if (dimension < 0) continue;
      const auto d = static_cast<std::size_t>(dimension);
      from.offsets[d] += ranges[l].begin * stride;
      from.sizes[d] += (ranges[l].size - 1) * stride;
      counts[d] *= ranges[l].size;
    }
    const std::int64_t bytes = from.volume() * item_;
    if (from.sizes != counts && bytes > most_gap_bytes) {
      const std::size_t gap = outermost(ranges, [&](std::size_t d) { return from.sizes[d] != counts[d]; });
      if (step_bytes(ranges, gap, from) >= least_step_bytes) return split(ranges, gap, 1);
    }
    if (const auto straight = from.sizes == counts ? direct_view(ranges, from) : std::nullopt)
      return read_(from, *straight);
    if (bytes > most_staging_bytes) {
      const std::size_t widest = outermost(ranges, [](std::size_t) { return true; });
      return split(ranges, widest, (ranges[widest].size + 1) / 2);
    }
    return copy_staged(ranges, from);
  }

 private:
  // The loop with the greatest steps on the left, of those with several indices in the dimensions that `counts`.
  template <class Predicate>
  std::size_t outermost(const std::vector<loop_range>& ranges, const Predicate& counts) const {
    std::size_t found = 0;
    std::pair<std::int32_t, std::int64_t> best{std::numeric_limits<std::int32_t>::max(), 0};
    for (std::size_t l = 0; l < ranges.size(); ++l) {
      const auto& [dimension, stride] = piece_.loops[l].left;
      if (dimension < 0 || ranges[l].size == 1 || !counts(static_cast<std::size_t>(dimension))) continue;
      if (const std::pair here(dimension, -stride); here < best) best = here, found = l;
    }
    return found;
  }

  // The bytes of the source box for one index of a loop, in the loop's dimension and those after it.
  std::int64_t step_bytes(const std::vector<loop_range>& ranges, std::size_t loop, const box& from) const {
    const auto& [dimension, stride] = piece_.loops[loop].left;
    const auto d = static_cast<std::size_t>(dimension);
    std::int64_t made = (from.sizes[d] - (ranges[loop].size - 1) * stride) * item_;
    for (std::size_t inner = d + 1; inner < from.rank(); ++inner) made *= from.sizes[inner];
    return made;
  }

  result<void> split(std::vector<loop_range>& ranges, std::size_t along, std::int64_t step) {
    const loop_range whole = ranges[along];
    for (std::int64_t i = 0; i < whole.size; i += step) {
      ranges[along] = {whole.begin + i, std::min(step, whole.size - i)};
      SHARDMESH_TRY(copy(ranges));
    }
    ranges[along] = whole;
    return {};
  }

  std::byte* target_of(const std::vector<loop_range>& ranges) const {
    std::int64_t at = origin_;
    for (std::size_t l = 0; l < ranges.size(); ++l) at += ranges[l].begin * memory_strides_[l];
    return to_.data + at * item_;
  }

  // Returns the view of `to` into which the box can be read as it is: the loops of each dimension on the left must move
  // through the target's memory like one loop.
  std::optional<tensor_view> direct_view(const std::vector<loop_range>& ranges, const box& from) const {
    tensor_view view{target_of(ranges), to_.type, to_.where, from.sizes, extents::filled(from.rank(), 1)};
    for (std::size_t l = 0; l < ranges.size(); ++l)
      if (piece_.loops[l].left.dimension < 0 && ranges[l].size > 1) return std::nullopt;  // one element, many places
    for (std::size_t d = 0; d < from.rank(); ++d) {
      std::vector<std::size_t> loops;
      for (std::size_t l = 0; l < ranges.size(); ++l)
        if (piece_.loops[l].left.dimension == static_cast<std::int32_t>(d) && ranges[l].size > 1) loops.push_back(l);
      std::sort(loops.begin(), loops.end(), [&](std::size_t a, std::size_t b) {
        return piece_.loops[a].left.stride < piece_.loops[b].left.stride;
      });
      std::int64_t count = 1;
      for (const std::size_t l : loops) {
        if (count == 1) view.strides[d] = memory_strides_[l];
        if (piece_.loops[l].left.stride != count || memory_strides_[l] != view.strides[d] * count) return std::nullopt;
        count *= ranges[l].size;
      }
    }
    return view;
  }

  result<void> copy_staged(const std::vector<loop_range>& ranges, const box& from) {
    const std::int64_t bytes = from.volume() * item_;
    if (bytes > staging_bytes_) {
      staging_.reset(new (std::nothrow) std::byte[static_cast<std::size_t>(bytes)]);
      if (staging_ == nullptr) {
        staging_bytes_ = 0;
        error lack = fail(errc::no_memory, "there is no memory for the staging of a mapping");
        lack.sys = ENOMEM;
        return lack;
      }
      staging_bytes_ = bytes;
    }
    const extents strides = contiguous_strides(from.sizes);
    SHARDMESH_TRY(read_(from, {staging_.get(), to_.type, {}, from.sizes, strides}));
    tensor_view target{target_of(ranges), to_.type, to_.where, {}, {}};
    const_tensor_view source{staging_.get(), to_.type, {}, {}, {}};
    for (std::size_t l = 0; l < ranges.size(); ++l) {
      if (ranges[l].size == 1) continue;
      const auto& [dimension, stride] = piece_.loops[l].left;
      target.sizes.push_back(ranges[l].size);
      target.strides.push_back(memory_strides_[l]);
      source.sizes.push_back(ranges[l].size);
      source.strides.push_back(dimension < 0 ? 0 : stride * strides[static_cast<std::size_t>(dimension)]);
    }
    return copy_between(target, source);
  }

  const index_piece& piece_;
  const tensor_view& to_;
  box_reader read_;
  std::int64_t item_;
  std::vector<std::int64_t> memory_strides_;  // one per loop: elements of `to` that one step moves
  std::int64_t origin_ = 0;                   // elements of `to` from its first to the piece's first
  std::unique_ptr<std::byte[]> staging_;
  std::int64_t staging_bytes_ = 0;
};

}  // namespace

std::vector<std::size_t> transposed_dimensions(const index_relation& relation, std::size_t right_tensor,
                                               std::size_t stacked) {
  if (relation.right.empty()) return {};  // a rename
  constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();
  const extents& shape = relation.right[right_tensor].shape;
  const extents right_strides = contiguous_strides(shape);
  std::vector<std::int64_t> fastest(shape.rank(), none);  // per dimension: the smallest step in a left tensor
  bool is_transposed = false;
  for (const index_piece& piece : relation.pieces) {
    const bool is_empty =
        std::any_of(piece.loops.begin(), piece.loops.end(), [](const index_loop& loop) { return loop.extent == 0; });
    if (piece.right_tensor != right_tensor || is_empty) continue;
    const extents left_strides = contiguous_strides(relation.left[piece.left_tensor].shape);
    std::int64_t least_left = none, least_right = none, left_of_least_right = none;
    for (const index_loop& loop : piece.loops) {
      if (loop.left.dimension < 0 || loop.right.dimension < 0) continue;
      const auto d = static_cast<std::size_t>(loop.right.dimension);
      const std::int64_t left = loop.left.stride * left_strides[static_cast<std::size_t>(loop.left.dimension)];
      const std::int64_t right = loop.right.stride * right_strides[d];
      fastest[d] = std::min(fastest[d], left);
      least_left = std::min(least_left, left);
      if (right < least_right) least_right = right, left_of_least_right = left;
    }
    is_transposed |= left_of_least_right > least_left;
  }
  std::vector<std::size_t> made;
  if (!is_transposed) return made;
  for (std::size_t d = stacked; d < shape.rank(); ++d)
    if (fastest[d] != none) made.push_back(d - stacked);
  std::sort(made.begin(), made.end(), [&](std::size_t a, std::size_t b) {
    const std::int64_t of_a = fastest[a + stacked], of_b = fastest[b + stacked];
    return of_a != of_b ? of_a < of_b : a < b;
  });
  return made;
}

result<void> fill(const index_filler& filler, const box& part, const tensor_view& to,
                  const const_tensor_view& element) {
  const index_piece positions{0, 0, {}, filler.origin, filler.loops};
  std::int64_t origin = 0;
  for (std::size_t d = 0; d < part.rank(); ++d) origin += (filler.origin[d] - part.offsets[d]) * to.strides[d];
  return for_each_loop_box(positions, part, [&](std::vector<loop_range>& ranges) -> result<void> {
    tensor_view target{to.data + origin * item_bytes(to.type), to.type, to.where, {}, {}};
    for (std::size_t l = 0; l < ranges.size(); ++l) {
      const auto& [dimension, stride] = filler.loops[l].right;
      const std::int64_t step = to.strides[static_cast<std::size_t>(dimension)] * stride;
      target.data += ranges[l].begin * step * item_bytes(to.type);
      target.sizes.push_back(ranges[l].size);
      target.strides.push_back(step);
    }
    return copy_between(target, {element.data, element.type, {}, target.sizes, extents::filled(ranges.size(), 0)});
  });
}

result<void> gather(const index_piece& piece, const box& part, const tensor_view& to, box_reader read,
                    std::span<const std::int64_t> repetition) {
  gatherer work(piece, part, to, read);
  return for_each_loop_box(piece, part, [&](std::vector<loop_range>& ranges) -> result<void> {
    std::size_t next = 0;
    for (std::size_t l = 0; l < ranges.size() && next < repetition.size(); ++l)
      if (piece.loops[l].right.dimension < 0) ranges[l] = {repetition[next++], 1};
    return work.copy(ranges);
  });
}

}  // namespace shardmesh
