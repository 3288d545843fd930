// SPDX-License-Identifier: Apache-2.0
// `extents`: one signed 64-bit number per tensor dimension, stored in place (no allocation).
#pragma once
#include <shardmesh/assert.hpp>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

namespace shardmesh {

/// The highest tensor rank that shardmesh handles. Readers refuse more with errc::rank_too_large.
inline constexpr std::size_t max_rank = 16;

/// Up to `max_rank` numbers: sizes, offsets, strides, or coordinates. A regular value; a scalar has rank 0.
class extents {
 public:
  using value_type = std::int64_t;

  constexpr extents() = default;
  constexpr extents(std::initializer_list<std::int64_t> values)
      : extents(std::span<const std::int64_t>(values.begin(), values.size())) {}
  constexpr explicit extents(std::span<const std::int64_t> values) : rank_(static_cast<std::uint8_t>(values.size())) {
    SHARDMESH_ASSERT(values.size() <= max_rank);
    std::copy(values.begin(), values.end(), values_);
  }
  /// `rank` copies of `value`.
  static constexpr extents filled(std::size_t rank, std::int64_t value) {
    extents made;
    for (std::size_t d = 0; d < rank; ++d) made.push_back(value);
    return made;
  }

  constexpr std::size_t rank() const { return rank_; }
  constexpr std::size_t size() const { return rank_; }
  constexpr bool empty() const { return rank_ == 0; }
  constexpr std::int64_t& operator[](std::size_t d) { return values_[d]; }
  constexpr std::int64_t operator[](std::size_t d) const { return values_[d]; }
  constexpr std::int64_t* begin() { return values_; }
  constexpr std::int64_t* end() { return values_ + rank_; }
  constexpr const std::int64_t* begin() const { return values_; }
  constexpr const std::int64_t* end() const { return values_ + rank_; }
  constexpr const std::int64_t* data() const { return values_; }
  constexpr operator std::span<const std::int64_t>() const { return {values_, rank_}; }

  constexpr void push_back(std::int64_t value) {
    SHARDMESH_ASSERT(rank_ < max_rank);
    values_[rank_++] = value;
  }
  /// Changes the rank; new entries are 0.
  constexpr void resize(std::size_t rank) {
    SHARDMESH_ASSERT(rank <= max_rank);
    for (std::size_t d = rank_; d < rank; ++d) values_[d] = 0;
    rank_ = static_cast<std::uint8_t>(rank);
  }

  friend constexpr bool operator==(const extents& a, const extents& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  friend constexpr std::strong_ordering operator<=>(const extents& a, const extents& b) {
    return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::int64_t values_[max_rank]{};
  std::uint8_t rank_ = 0;
};

}  // namespace shardmesh
