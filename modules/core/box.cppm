// SPDX-License-Identifier: Apache-2.0
// box: a half-open rectangle of index space, and its few operations. Not here: where a box lies (layout's fragment).
export module shardmesh.core:box;

import shardmesh.std;
import :extents;

export namespace shardmesh {

/// The indices i with offsets[d] <= i[d] < offsets[d] + sizes[d]. Sizes may be 0; rank 0 is the box of a scalar, with
/// volume 1. Boxes from files go through `is_well_formed` and `lies_within` before anything else.
struct box {
  extents offsets;
  extents sizes;

  /// The whole of a tensor of this shape.
  static constexpr box whole(const extents& shape) { return {extents::filled(shape.rank(), 0), shape}; }

  constexpr std::size_t rank() const { return sizes.rank(); }
  constexpr std::int64_t end(std::size_t d) const { return offsets[d] + sizes[d]; }
  /// Number of elements. Precondition: it fits (true of every box within a valid tensor). Cost: O(rank).
  constexpr std::int64_t volume() const {
    std::int64_t product = 1;
    for (const std::int64_t size : sizes) product *= size;
    return product;
  }
  constexpr bool is_empty() const {
    for (const std::int64_t size : sizes)
      if (size == 0) return true;
    return false;
  }

  friend constexpr bool operator==(const box&, const box&) = default;
  friend constexpr std::strong_ordering operator<=>(const box&, const box&) = default;
};

/// Offsets and sizes have equal rank, none is negative and every end fits in 64 bits.
bool is_well_formed(const box& b);

/// Every index of `inner` is one of `outer` (an empty box lies within when its offsets and ends do).
/// Precondition: both well formed, equal rank.
bool lies_within(const box& inner, const box& outer);

/// The common indices, or nothing when there are none. Precondition: equal rank. Two scalars' boxes intersect.
constexpr std::optional<box> intersect(const box& a, const box& b) {
  box common{extents::filled(a.rank(), 0), extents::filled(a.rank(), 0)};
  for (std::size_t d = 0; d < a.rank(); ++d) {
    const std::int64_t begin = std::max(a.offsets[d], b.offsets[d]);
    const std::int64_t end = std::min(a.end(d), b.end(d));
    if (begin >= end) return std::nullopt;
    common.offsets[d] = begin;
    common.sizes[d] = end - begin;
  }
  return common;
}

/// `b` moved by `distance`, one entry per dimension.
box shifted(const box& b, const extents& distance);

/// `b` seen from `origin`: offsets minus origin's offsets.
box relative_to(const box& b, const box& origin);

/// "[4:6, 0:8)"; a scalar's is "[)" with nothing inside.
std::string to_string(const box& b);

}  // namespace shardmesh
