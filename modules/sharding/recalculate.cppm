// SPDX-License-Identifier: Apache-2.0
// Computes offsets and the global size from the shards' sizes alone, for tensors whose ranks know only their own length
// along one dimension (row-wise tables). Combining the ranks' metadata is in build.
export module shardmesh.sharding:recalculate;

import shardmesh.std;
import shardmesh.transfer;
import :metadata;
import :metadata_like;

export namespace shardmesh {

/// Replaces all offsets. Along `dim`, shards follow one another in rank order, those of one rank in list order; all
/// other offsets become 0. The size along `dim` becomes the sum of the shards' sizes; the other sizes become the
/// shards' own. The list keeps its order. Without shards, the size along `dim` becomes 0.
/// \param dim  the sharded dimension; negative counts from the last
/// \errors errc::out_of_bounds for a dimension that does not exist, or a negative size; errc::invalid_argument for a
///         shard whose placement names no rank; errc::shape_mismatch when shards differ in another dimension or in
///         their number of dimensions, naming both ranks; errc::overflow when the sum does not fit in 64 bits
/// Cost: O(n log n).
/// Source: torch.distributed._shard.sharded_tensor.utils.recalc_global_sharded_tensor_metadata, which is right only for
///         lists in rank order and compares no other dimension
result<sharded_tensor_metadata> recalc_global_sharded_tensor_metadata(sharded_tensor_metadata metadata,
                                                                      std::int32_t dim = 0);

/// The same for metadata of any type, which is not modified.
/// \errors as above; errc::rank_too_large
result<sharded_tensor_metadata> recalc_global_sharded_tensor_metadata(const sharded_tensor_metadata_view& metadata,
                                                                      std::int32_t dim = 0);

}  // namespace shardmesh
