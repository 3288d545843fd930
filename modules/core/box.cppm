// SPDX-License-Identifier: Apache-2.0
// box: a half-open box of index space and its basic operations. A box with a place is layout's `fragment`.
export module shardmesh.core:box;

import shardmesh.std;
import :extents;

export namespace shardmesh {

/// The indices i with offsets[d] <= i[d] < offsets[d] + sizes[d]. Sizes may be 0. A box of rank 0 is a scalar's box,
/// with volume 1. Check boxes from files with `is_well_formed` and `lies_within` before any other use.
struct box {
  extents offsets;
  extents sizes;

  /// Returns the box of a whole tensor of this shape.
  static constexpr box whole(const extents& shape) { return {extents::filled(shape.rank(), 0), shape}; }

  constexpr std::size_t rank() const { return sizes.rank(); }
  constexpr std::int64_t end(std::size_t d) const { return offsets[d] + sizes[d]; }
  /// Number of elements. Precondition: it fits in 64 bits (true of every box within a valid tensor). Cost: O(rank).
  constexpr std::int64_t volume() const {
    if (is_empty()) return 0;  // the product of the other sizes may overflow
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

/// Returns whether offsets and sizes have equal rank, none is negative, and every end fits in 64 bits.
bool is_well_formed(const box& b);

/// Returns whether every index of `inner` is an index of `outer`. The offsets and ends of an empty `inner` must still
/// lie within `outer`.
/// Precondition: both are well formed and have equal rank.
bool lies_within(const box& inner, const box& outer);

/// Returns the common indices, or nothing when there are none. Two scalars' boxes intersect.
/// Precondition: equal rank.
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

/// Returns `b` moved by `distance`, which has one entry per dimension.
box shifted(const box& b, const extents& distance);

/// Returns `b` relative to `origin`: its offsets minus the offsets of `origin`.
box relative_to(const box& b, const box& origin);

/// Formats a box as "[4:6, 0:8)"; a scalar's box as "[)".
std::string to_string(const box& b);

}  // namespace shardmesh
