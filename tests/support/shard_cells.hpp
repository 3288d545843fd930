// SPDX-License-Identifier: Apache-2.0
// The model for tests of shard checks: an array that counts how often each cell of a tensor is held. Of the library, it
// uses only number lists. Include before imports.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <range/v3/algorithm/any_of.hpp>
#include <range/v3/view/zip.hpp>
#include <vector>

namespace shard_cells {

using numbers = std::vector<std::int64_t>;

struct shard {
  numbers offsets, sizes;
};

inline bool has_rank(const shard& s, std::size_t rank) {
  return s.offsets.size() == rank && s.sizes.size() == rank;
}
inline bool is_empty(const shard& s) {
  return std::find(s.sizes.begin(), s.sizes.end(), 0) != s.sizes.end();
}

/// Calls `visit(cell)` with the row-major number of every cell of `size` in the shard.
template <class Visit>
void for_each_cell(const numbers& size, const shard& s, Visit visit) {
  std::int64_t volume = 1;
  for (const std::int64_t n : size) volume *= n;
  for (std::int64_t cell = 0; cell < volume; ++cell) {
    std::int64_t rest = cell;
    bool inside = true;
    for (std::size_t d = size.size(); d-- > 0;) {
      const std::int64_t i = rest % size[d];
      rest /= size[d];
      inside = inside && i >= s.offsets[d] && i < s.offsets[d] + s.sizes[d];
    }
    if (inside) visit(cell);
  }
}

/// The errors of a tensor's shards (small numbers only).
struct findings {
  std::size_t odd = 0;         // with another number of dimensions
  std::size_t outside = 0;     // not inside the tensor
  std::int64_t uncovered = 0;  // held by no shard
  std::int64_t doubled = 0;    // held by several shards
  bool ok() const { return odd == 0 && outside == 0 && uncovered == 0 && doubled == 0; }
};

inline findings look(const numbers& size, const std::vector<shard>& shards) {
  findings found;
  std::int64_t volume = 1;
  for (const std::int64_t n : size) volume *= n;
  std::vector<int> held(static_cast<std::size_t>(volume), 0);
  for (const shard& s : shards) {
    if (!has_rank(s, size.size())) {
      ++found.odd;
      continue;
    }
    found.outside += ranges::any_of(ranges::views::zip(s.offsets, s.sizes, size), [](const auto& along) {
      const auto& [offset, length, whole] = along;
      return offset < 0 || length < 0 || offset + length > whole;
    });
    for_each_cell(size, s, [&](std::int64_t cell) { ++held[static_cast<std::size_t>(cell)]; });
  }
  for (const int times : held) {
    found.uncovered += times == 0 ? 1 : 0;
    // A scalar cannot be cut: its shards are copies of one value.
    found.doubled += times > 1 && !size.empty() ? 1 : 0;
  }
  return found;
}

/// The cells that both shards hold, whatever the tensor. Precondition: equal rank.
inline shard common(const shard& a, const shard& b) {
  shard both;
  for (const auto& [i, m, k, n] : ranges::views::zip(a.offsets, a.sizes, b.offsets, b.sizes)) {
    both.offsets.push_back(std::max(i, k));
    both.sizes.push_back(std::max<std::int64_t>(0, std::min(i + m, k + n) - both.offsets.back()));
  }
  return both;
}

/// The number of pairs of shards that share a cell; shards of scalars never do.
inline std::size_t overlapping_pairs(const std::vector<shard>& shards) {
  std::size_t pairs = 0;
  for (std::size_t i = 0; i < shards.size(); ++i)
    for (std::size_t k = i + 1; k < shards.size(); ++k)
      if (has_rank(shards[i], shards[k].sizes.size()) && has_rank(shards[k], shards[k].sizes.size()) &&
          !shards[i].sizes.empty())
        pairs += is_empty(common(shards[i], shards[k])) ? 0 : 1;
  return pairs;
}

}  // namespace shard_cells
