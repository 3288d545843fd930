// SPDX-License-Identifier: Apache-2.0
// Offsets and global size from the shards' sizes alone, for tensors whose ranks know only their own length along one
// dimension (row-wise tables). Not here: combining ranks' metadata (build).
export module shardmesh.sharding:recalculate;

import shardmesh.std;
import shardmesh.transfer;
import :metadata;
import :metadata_like;

export namespace shardmesh {

/// The metadata with new offsets: along `dim` shards follow one another in the order of their ranks, those of one rank
/// in list order; all other offsets are 0. The size along `dim` is the sum of the shards', the others are the shards'
/// own. The list keeps its order; without shards the size along `dim` is 0.
/// \param dim  the dimension that is cut; negative counts from the last
/// \errors errc::out_of_bounds for a dimension that does not exist; errc::invalid_argument for a shard whose placement
///         names no rank; errc::shape_mismatch when shards differ in another dimension or in their number of
///         dimensions, naming both ranks; errc::overflow when the sum does not fit
/// Cost: O(n log n).
/// Source: torch.distributed._shard.sharded_tensor.utils.recalc_global_sharded_tensor_metadata, which is right only for
///         lists in rank order and compares no other dimension
result<sharded_tensor_metadata> recalc_global_sharded_tensor_metadata(sharded_tensor_metadata metadata,
                                                                      std::int32_t dim = 0);

/// The same for metadata of any type, which stays as it is. \errors as above; errc::rank_too_large
result<sharded_tensor_metadata> recalc_global_sharded_tensor_metadata(const sharded_tensor_metadata_view& metadata,
                                                                      std::int32_t dim = 0);

}  // namespace shardmesh
