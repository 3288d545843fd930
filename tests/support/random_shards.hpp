// SPDX-License-Identifier: Apache-2.0
// Random tensors cut into shards, and damage to them. Cuts are grids, guillotine cuts, or along one dimension; shards
// may be uneven or empty, with any owners. Include before imports.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "random_seed.hpp"
#include "shard_cells.hpp"

namespace random_shards {

using shard_cells::numbers;

struct drawn {
  numbers size;
  std::vector<shard_cells::shard> shards;
  std::vector<std::int32_t> owners;
};

inline std::uint64_t seed() {
  return random_seed::seed();
}

/// `usual` runs, or 25 times as many with SHARDMESH_PROPERTY_RUNS=long.
inline int runs(int usual) {
  const char* wish = std::getenv("SHARDMESH_PROPERTY_RUNS");
  return wish && std::string_view(wish) == "long" ? usual * 25 : usual;
}

inline std::int64_t below(std::mt19937_64& random, std::int64_t limit) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
}

/// Shards of a tensor of up to 4 dimensions, in any order, on `ranks` ranks (some may have none).
inline drawn draw(std::mt19937_64& random, std::int32_t ranks = 6) {
  drawn made;
  const std::int64_t rank = below(random, 5);
  for (std::int64_t d = 0; d < rank; ++d)
    made.size.push_back(below(random, 12) == 0 ? 0 : 1 + below(random, rank < 3 ? 9 : 5));
  made.shards.push_back({numbers(made.size.size(), 0), made.size});
  const std::int64_t cuts = rank == 0 ? 0 : below(random, 9);
  const std::int64_t only = below(random, 3) == 0 && rank > 0 ? below(random, rank) : -1;
  for (std::int64_t i = 0; i < cuts; ++i) {
    // A guillotine cut: one shard becomes two, one of which may be empty.
    const auto which = static_cast<std::size_t>(below(random, static_cast<std::int64_t>(made.shards.size())));
    const auto d = static_cast<std::size_t>(only >= 0 ? only : below(random, rank));
    shard_cells::shard low = made.shards[which], high = low;
    low.sizes[d] = below(random, low.sizes[d] + 1);
    high.offsets[d] += low.sizes[d];
    high.sizes[d] -= low.sizes[d];
    made.shards[which] = low;
    made.shards.push_back(high);
  }
  std::shuffle(made.shards.begin(), made.shards.end(), random);
  for (std::size_t i = 0; i < made.shards.size(); ++i)
    made.owners.push_back(static_cast<std::int32_t>(below(random, ranks)));
  return made;
}

/// Moves, grows, shrinks, repeats, drops, or bends one or more shards; some damage has no effect.
inline void damage(std::mt19937_64& random, drawn& all) {
  for (std::int64_t times = 1 + below(random, 2); times > 0 && !all.shards.empty(); --times) {
    const auto which = static_cast<std::size_t>(below(random, static_cast<std::int64_t>(all.shards.size())));
    shard_cells::shard& s = all.shards[which];
    const std::int64_t kind = below(random, 7);
    if (kind == 0) {
      all.shards.erase(all.shards.begin() + static_cast<std::ptrdiff_t>(which));
      all.owners.erase(all.owners.begin() + static_cast<std::ptrdiff_t>(which));
    } else if (kind == 1) {
      all.shards.push_back(shard_cells::shard(s));
      all.owners.push_back(static_cast<std::int32_t>(below(random, 6)));
    } else if (kind == 2 && below(random, 3) == 0) {
      s.offsets.push_back(0);
      s.sizes.push_back(1);
    } else if (!s.sizes.empty()) {
      const auto d = static_cast<std::size_t>(below(random, static_cast<std::int64_t>(s.sizes.size())));
      if (kind == 3) s.offsets[d] = std::max<std::int64_t>(0, s.offsets[d] - 1);
      if (kind == 4) s.offsets[d] += 1;
      if (kind == 5) s.sizes[d] += 1;
      if (kind == 6) s.sizes[d] = std::max<std::int64_t>(0, s.sizes[d] - 1);
    }
  }
}

}  // namespace random_shards
