// SPDX-License-Identifier: Apache-2.0
// Checks that the shards of a tensor lie within it, do not overlap, and cover it. Errors name ranks and boxes. The
// proof and the search, which work on flat arrays of boxes, are in cover (room layout).
export module shardmesh.sharding:validation;

import shardmesh.std;
import shardmesh.transfer;
import :metadata_like;

export namespace shardmesh {

/// Reports every problem with the shards of a tensor that has this size. Shards are of any `shard_metadata_like` type.
/// The problems are:
/// - out_of_bounds: a wrong number of dimensions, negative numbers, or ends beyond the tensor;
/// - overlap: cells that two shards hold. Equal boxes overlap, because a sharded tensor has no replicas;
/// - gap: cells that no shard holds.
/// Empty shards are valid anywhere within the tensor, and so is a tensor without cells. A 0-d tensor cannot be cut, so
/// each of its shards holds the whole. `first_index` and `second_index` of a problem are positions in `shards`;
/// `describe` puts the problem into words. Precondition: `size` passes `check_shape`.
/// Cost: O(n) when everything is right, O(n log n + problems) otherwise.
cover_report check_shards(const shard_metadata_list& shards, const extents& size, std::size_t max_problems = 100);

/// Describes a problem of `check_shards(shards, ..)`. The text names global ranks, or list positions for shards without
/// a rank: "ranks 2 and 5 overlap in [4:6, 0:8)", "[6:7, 0:8) is held by no rank", "shard 3 extends beyond the tensor
/// with [6:9)".
std::string describe(const cover_problem& problem, const shard_metadata_list& shards);

/// Checks that no two shards share a cell, whatever the size of their tensor.
/// \errors errc::overlap naming both shards, their ranks, and the cells; errc::shape_mismatch when shards differ in
///         their number of dimensions; errc::out_of_bounds for negative numbers and ends beyond 2^63;
///         errc::rank_too_large. The error names the first problem and counts the others.
/// Cost: O(n) when everything is right, O(n log n + problems) otherwise.
/// Source: torch.distributed._shard.sharding_spec._internals.validate_non_overlapping_shards_metadata, which takes up
///         to O(n^2), and mistakes an empty shard inside another, or two shards of a 0-d tensor, for an overlap
result<void> validate_non_overlapping_shards_metadata(const shard_metadata_list& shards);

/// Checks that the shards make up a tensor of this size, as `check_shards` does.
/// \errors as above, and errc::gap naming the first cells that no shard holds; errc::overflow for a size that no tensor
///         can have
/// Source: torch.distributed._shard.sharding_spec._internals.check_tensor, which compares volumes only
result<void> check_tensor(const shard_metadata_list& shards, const extents& size);

}  // namespace shardmesh
