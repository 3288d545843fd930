// SPDX-License-Identifier: Apache-2.0
// The largest count among the ranks that get their work from rank 0. It names no shardmesh type, so that it can be
// included before imports.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

/// Returns the largest value of `count` over all ranks but rank 0.
template <class Counts>
std::int64_t most_of_others(const std::vector<Counts>& ranks, std::int64_t Counts::* count) {
  std::int64_t most = 0;
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) most = std::max(most, ranks[rank].*count);
  return most;
}
