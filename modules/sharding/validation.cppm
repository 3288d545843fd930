// SPDX-License-Identifier: Apache-2.0
// Do the shards of a tensor lie in it, apart from each other, and cover it? Names what is wrong by ranks and boxes.
// Not here: the proof and the search, which work on flat arrays of boxes (layout's cover).
export module shardmesh.sharding:validation;

import shardmesh.std;
import shardmesh.transfer;
import :metadata_like;

export namespace shardmesh {

/// Everything that is wrong with the shards, of any type (`shard_metadata_like`), of a tensor of these sizes: shards
/// that have another number of dimensions, negative numbers or ends beyond the tensor (out_of_bounds), cells that two
/// shards hold (overlap; equal boxes are one, a sharded tensor has no replicas), cells that none holds (gap). Empty
/// shards are ordinary wherever they lie within the tensor, and so is a tensor without cells; a 0-d tensor cannot be
/// cut, so all its shards hold the whole. Precondition: `size` is a tensor's (`check_shape`). `first_index` and
/// `second_index` of a problem are positions in `shards`; `describe` puts it in words. Cost: O(n) when all is right,
/// O(n log n + problems) otherwise.
cover_report check_shards(const shard_metadata_list& shards, const extents& size, std::size_t max_problems = 100);

/// A problem of `check_shards(shards, ..)` in words, with global ranks where shards have one and positions in the list
/// where they have none: "ranks 2 and 5 overlap in [4:6, 0:8)", "[6:7, 0:8) is held by no rank", "shard 3 leaves the
/// tensor with [6:9)".
std::string describe(const cover_problem& problem, const shard_metadata_list& shards);

/// Error when two shards share a cell, whatever tensor they are of.
/// \errors errc::overlap naming both shards, their ranks, and the cells; errc::shape_mismatch when shards differ in
///         their number of dimensions; errc::out_of_bounds for negative numbers and ends beyond 2^63. The first problem
///         is named and the others counted.
/// Cost: O(n) when all is right, O(n log n + problems) otherwise.
/// Source: torch.distributed._shard.sharding_spec._internals.validate_non_overlapping_shards_metadata (up to O(n^2);
/// takes an empty shard inside another and two shards of a 0-d tensor for overlaps)
result<void> validate_non_overlapping_shards_metadata(const shard_metadata_list& shards);

/// Error when the shards do not make up a tensor of these sizes: what `check_shards` finds.
/// \errors as above, and errc::gap naming the first cells that no shard holds; errc::overflow when the size is no
/// tensor's Source: torch.distributed._shard.sharding_spec._internals.check_tensor (compares volumes only)
result<void> check_tensor(const shard_metadata_list& shards, const extents& size);

}  // namespace shardmesh
