// SPDX-License-Identifier: Apache-2.0
// Coverage: checks that exactly one box holds each cell of a tensor, and reports violations by rank and box.
export module shardmesh.layout:cover;

import shardmesh.std;
import shardmesh.core;
import :distribution;

export namespace shardmesh {

/// The ways in which a set of boxes fails to cover a tensor.
enum class cover_kind : std::uint8_t {
  overlap,       // two boxes share cells
  gap,           // cells that no box holds
  out_of_bounds  // a box leaves the tensor, or has negative numbers
};

/// One violation by a set of boxes.
struct cover_problem {
  cover_kind kind = cover_kind::gap;
  box where;                                       // the cells concerned
  owner_id first = 0, second = 0;                  // for an overlap; out_of_bounds has only `first`
  std::int64_t first_index = 0, second_index = 0;  // indices of the boxes in the input
  owner_space space = owner_space::ranks;
  friend bool operator==(const cover_problem&, const cover_problem&) = default;
};

/// Formats a problem: "ranks 2 and 5 overlap in [4:6, 0:8)", "[6:7, 0:8) is held by no rank", "rank 3 extends beyond
/// the tensor with [6:9)".
std::string to_string(const cover_problem& problem);

/// The result of `check_cover`, `check_boxes`, and `check_overlaps`: the first problems, and their total number.
struct cover_report {
  std::vector<cover_problem> problems;  // the first problems: out of bounds, then overlaps, then gaps
  std::int64_t total = 0;               // number of problems
  bool total_is_exact = true;           // false: counting stopped after many millions of steps; more may exist
  bool ok() const { return total == 0; }
};

/// The meaning of equal, non-empty boxes. They are copies of the same cells, as in a distribution, or an overlap, as in
/// PyTorch's ShardedTensor metadata, which has no replicas. Boxes of a 0-d tensor are always copies: a scalar cannot be
/// cut, so each shard of it is the whole.
enum class equal_boxes : std::uint8_t { replicas, overlap };

/// Checks that the fragments cover the tensor, each cell by one box. Equal boxes (replicas, terms) count as one. Empty
/// boxes hold no cells and are ignored, wherever they lie; a tensor without cells needs no boxes. Cost: O(1) for
/// distributions that are complete by construction, else as `check_boxes`.
cover_report check_cover(const distribution& d, std::size_t max_problems = 100);

/// Checks boxes in flat arrays: `shape.rank()` numbers per box in `offsets` and `sizes` (any values), and one owner per
/// box. A box that leaves the tensor is a problem, but its part inside the tensor counts.
///
/// Cost: O(n rank) for n boxes that cover the tensor. The proof adds up a random measure of the boxes; an invalid cover
/// passes with a probability below 2^-100, however its boxes were chosen. Boxes that fail the proof cost O(n log n),
/// and a little more per defect. In up to two cut dimensions, overlapping pairs are counted exactly, however many there
/// are. `total_is_exact` is false when a count stops early; at least one problem is reported even then.
/// Precondition: the arrays' lengths agree; fewer than 2^32 boxes.
/// Source: torch.distributed._shard.sharding_spec._internals.check_tensor and validate_non_overlapping_shards_metadata,
/// which stop at the first problem, do not locate gaps, and treat empty shards as overlaps.
cover_report check_boxes(const extents& shape, std::span<const std::int64_t> offsets,
                         std::span<const std::int64_t> sizes, std::span<const owner_id> owners,
                         std::size_t max_problems = 100, owner_space space = owner_space::ranks,
                         equal_boxes equal = equal_boxes::replicas);

/// Pointers to the numbers of a box, one per dimension in each array.
struct box_numbers {
  const std::int64_t* offsets = nullptr;
  const std::int64_t* sizes = nullptr;
};

/// Runs only the proof, for boxes that are not in flat arrays and need no copy when the cover is valid. `box_at(i)`
/// returns box i below `count`: `shape.rank()` dimensions with any numbers. True: all boxes lie within the tensor and
/// hold every cell once. False: they do not, or there are replicas; call `check_boxes` for the reason. Cost: O(n rank),
/// no allocation.
bool is_partition(const extents& shape, std::size_t count, function_ref<box_numbers(std::size_t)> box_at);

/// Returns true when the boxes have no negative numbers and together fill a box without overlap. False proves nothing:
/// call `check_overlaps`. Cost: O(n rank), no allocation.
bool tiles_a_box(std::size_t rank, std::size_t count, function_ref<box_numbers(std::size_t)> box_at);

/// Checks whether any two boxes share a cell, without checking coverage. There are `rank` numbers per box in `offsets`
/// and `sizes`, and one owner per box. Equal, non-empty boxes overlap here, except 0-d ones (see `equal_boxes`).
/// Problems are of kind overlap, or out_of_bounds for boxes with negative numbers or ends that do not fit in 64 bits.
/// The latter are not compared with other boxes.
/// Cost: O(n rank) when the boxes together fill a box; otherwise O(n log n), and a little more per reported pair.
/// Precondition: the arrays' lengths agree; rank is at most `max_rank`; fewer than 2^32 boxes.
/// Source: torch.distributed._shard.sharding_spec._internals.validate_non_overlapping_shards_metadata.
cover_report check_overlaps(std::size_t rank, std::span<const std::int64_t> offsets,
                            std::span<const std::int64_t> sizes, std::span<const owner_id> owners,
                            std::size_t max_problems = 100, owner_space space = owner_space::ranks);

}  // namespace shardmesh
