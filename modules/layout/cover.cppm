// SPDX-License-Identifier: Apache-2.0
// Coverage: is every cell of a tensor held, and by one box only? Names what is wrong, by ranks and boxes.
module;
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>
export module shardmesh.layout:cover;

import shardmesh.core;
import :distribution;

export namespace shardmesh {

enum class cover_kind : std::uint8_t { overlap, gap, out_of_bounds };

/// One thing that is wrong with a set of boxes.
struct cover_problem {
  cover_kind kind = cover_kind::gap;
  box where;                                       // the cells in question
  owner_id first = 0, second = 0;                  // of an overlap; out_of_bounds has `first`
  std::int64_t first_index = 0, second_index = 0;  // which boxes, in the order of the input
  owner_space space = owner_space::ranks;
  friend bool operator==(const cover_problem&, const cover_problem&) = default;
};

/// "ranks 2 and 5 overlap in [4:6, 0:8)", "[6:7, 0:8) is held by no rank", "rank 3 leaves the tensor with [6:9)".
std::string to_string(const cover_problem& problem);

struct cover_report {
  std::vector<cover_problem> problems;  // the first ones: out of bounds, then overlaps, then gaps
  std::int64_t total = 0;               // how many there are
  bool total_is_exact = true;           // false: counting stopped at many millions of cases; there are more
  bool ok() const { return total == 0; }
};

/// Whether the fragments cover the tensor, each cell by one box. Equal boxes (replicas, terms) count as one; empty
/// boxes hold nothing and disturb nothing, wherever they lie; a tensor without cells needs none. Cost: O(1) for
/// distributions that are complete by construction, O(n) for valid lists, O(n log n + problems) otherwise.
cover_report check_cover(const distribution& d, std::size_t max_problems = 100);

/// The same for boxes in flat arrays: `shape.rank()` numbers per box in `offsets` and `sizes` (any values), one owner
/// per box. Boxes that leave the tensor are problems; what they share with it counts.
/// Precondition: the arrays' lengths agree.
cover_report check_boxes(const extents& shape, std::span<const std::int64_t> offsets,
                         std::span<const std::int64_t> sizes, std::span<const owner_id> owners,
                         std::size_t max_problems = 100, owner_space space = owner_space::ranks);

}  // namespace shardmesh
