// SPDX-License-Identifier: Apache-2.0
// Coverage: is every cell of a tensor held, and by one box only? Names what is wrong, by ranks and boxes.
export module shardmesh.layout:cover;

import shardmesh.std;
import shardmesh.core;
import :distribution;

export namespace shardmesh {

/// How a set of boxes fails to cover a tensor.
enum class cover_kind : std::uint8_t {
  overlap,       // two boxes share cells
  gap,           // cells that no box holds
  out_of_bounds  // a box leaves the tensor, or has negative numbers
};

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

/// What `check_cover`, `check_boxes` and `check_overlaps` found: the first problems, and how many there are.
struct cover_report {
  std::vector<cover_problem> problems;  // the first ones: out of bounds, then overlaps, then gaps
  std::int64_t total = 0;               // how many there are
  bool total_is_exact = true;           // false: counting stopped at many millions of cases; there are more
  bool ok() const { return total == 0; }
};

/// What equal boxes that are not empty mean: copies of the same cells, as in a distribution, or an overlap, as in
/// PyTorch's ShardedTensor metadata, which knows no replicas. Boxes of a 0-d tensor are always copies: a scalar cannot
/// be cut, so whoever has a shard of it has all of it.
enum class equal_boxes : std::uint8_t { replicas, overlap };

/// Whether the fragments cover the tensor, each cell by one box. Equal boxes (replicas, terms) count as one; empty
/// boxes hold nothing and disturb nothing, wherever they lie; a tensor without cells needs none. Cost: O(1) for
/// distributions that are complete by construction, else as `check_boxes`.
cover_report check_cover(const distribution& d, std::size_t max_problems = 100);

/// The same for boxes in flat arrays: `shape.rank()` numbers per box in `offsets` and `sizes` (any values), one owner
/// per box. Boxes that leave the tensor are problems; what they share with it counts.
///
/// Cost: O(n rank) when all is well (n boxes): that boxes cover is proven by adding up a random measure of them, which
/// is wrong about boxes that do not with a probability below 2^-100, however they were chosen. Else O(n log n) and a
/// little more per defect; overlapping pairs are counted exactly in up to two cut dimensions, however many they are,
/// and where a count is cut short `total_is_exact` says so: something is named even then.
/// Precondition: the arrays' lengths agree; less than 2^32 boxes.
/// Source: torch.distributed._shard.sharding_spec._internals.check_tensor and validate_non_overlapping_shards_metadata,
/// which stop at the first problem, do not know where a gap is, and take empty shards for overlaps.
cover_report check_boxes(const extents& shape, std::span<const std::int64_t> offsets,
                         std::span<const std::int64_t> sizes, std::span<const owner_id> owners,
                         std::size_t max_problems = 100, owner_space space = owner_space::ranks,
                         equal_boxes equal = equal_boxes::replicas);

/// Where the numbers of a box are: one per dimension in each.
struct box_numbers {
  const std::int64_t* offsets = nullptr;
  const std::int64_t* sizes = nullptr;
};

/// The proof alone, for boxes that are not in flat arrays and need not be copied there when all is well: `box_at(i)`
/// for i below `count` are boxes of `shape.rank()` dimensions, any numbers. True: all lie within the tensor and hold
/// every cell once; false: they do not, or there are replicas: ask `check_boxes`. Cost: O(n rank), no allocation.
bool is_partition(const extents& shape, std::size_t count, function_ref<box_numbers(std::size_t)> box_at);

/// True: the boxes have no negative numbers and none overlap, as they fill a box together. False says nothing: ask
/// `check_overlaps`. Cost: O(n rank), no allocation.
bool tiles_a_box(std::size_t rank, std::size_t count, function_ref<box_numbers(std::size_t)> box_at);

/// Whether two boxes share a cell, without asking whether they cover anything. `rank` numbers per box in `offsets` and
/// `sizes`, one owner per box. Equal boxes that are not empty overlap here, but for 0-d ones (`equal_boxes`). Problems
/// are of kind overlap; and out_of_bounds for boxes with negative numbers or ends that do not fit in 64 bits, which are
/// compared with nothing.
/// Cost: O(n rank) when the boxes fill a box together, O(n log n) and a little more per overlapping pair that is named
/// otherwise. Precondition: the arrays' lengths agree; rank at most `max_rank`; less than 2^32 boxes.
/// Source: torch.distributed._shard.sharding_spec._internals.validate_non_overlapping_shards_metadata.
cover_report check_overlaps(std::size_t rank, std::span<const std::int64_t> offsets,
                            std::span<const std::int64_t> sizes, std::span<const owner_id> owners,
                            std::size_t max_problems = 100, owner_space space = owner_space::ranks);

}  // namespace shardmesh
