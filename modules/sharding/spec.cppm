// SPDX-License-Identifier: Apache-2.0
// Sharding specs: a rule for cutting a tensor of any size into chunks along one dimension, or an explicit list of
// shards. Cutting over meshes is in room layout; tensors are in shard.
export module shardmesh.sharding:spec;

import shardmesh.std;
import shardmesh.transfer;
import :metadata;
import :metadata_like;

export namespace shardmesh {

/// A cut into chunks along one dimension. Chunk i is on placement i, and placements may repeat. A negative dimension
/// counts from the last.
/// Source: torch.distributed._shard.sharding_spec.ChunkShardingSpec
struct chunk_sharding_spec {
  std::int32_t dim = 0;
  std::vector<remote_device> placements;
  split_rule rule{};  // PyTorch has torch_chunk only
  friend bool operator==(const chunk_sharding_spec&, const chunk_sharding_spec&) = default;
};

/// An explicit list of shards.
/// Source: torch.distributed._shard.sharding_spec.EnumerableShardingSpec
struct enumerable_sharding_spec {
  std::vector<shard_metadata> shards;
  friend bool operator==(const enumerable_sharding_spec&, const enumerable_sharding_spec&) = default;
};

/// Either kind of spec.
/// Source: torch.distributed._shard.sharding_spec.ShardingSpec
using sharding_spec = std::variant<chunk_sharding_spec, enumerable_sharding_spec>;

/// Formats a spec: "4 torch_chunk chunks along dimension 0 on rank:0/cpu, rank:1/cpu, .."; long lists are shortened.
std::string to_string(const chunk_sharding_spec& spec);
/// Formats a spec: "2 shards: [0:2) on rank:0/cpu, [2:4) on rank:1/cpu"; long lists are shortened.
std::string to_string(const enumerable_sharding_spec& spec);
std::string to_string(const sharding_spec& spec);

/// Builds the metadata of a tensor of this size. A chunk spec gives one shard per placement, in the order of the
/// placements. Empty shards lie at the end of the dimension; PyTorch puts them beyond it, where its own checks refuse
/// them. Listed shards are checked and kept.
/// \errors errc::out_of_bounds for a dimension that does not exist; errc::invalid_argument without placements or for a
///         rule that does not fit; those of `check_tensor` for listed shards; errc::overflow for a size that no tensor
///         can have
/// Cost: O(shards); for a list, that of `check_tensor`.
/// Source: ChunkShardingSpec.build_metadata, EnumerableShardingSpec.build_metadata
result<sharded_tensor_metadata> build_metadata(const sharding_spec& spec, const extents& size,
                                               const tensor_properties& properties = {});

/// Returns the distribution of a tensor of this size over the ranks of the group. If every chunk has a rank of its own,
/// the distribution is computed on demand, whatever the number of chunks; otherwise it is a list of the shards. Owners
/// are group ranks. A shard's slot is its position among its owner's shards.
/// \errors those of `build_metadata`; errc::invalid_argument for a placement without a rank or with one outside the
///         group
result<distribution> distribution_of(const sharding_spec& spec, const extents& size, const rank_group& group);

/// Returns the chunk spec that makes these shards, or the list itself if there is none. A chunk spec needs several
/// shards, all with placements, that torch_chunk cuts along one dimension. Empty shards may lie at the end of the
/// dimension or beyond it.
/// Precondition: shards have at most `max_rank` dimensions.
/// Cost: O(n log n).
/// Source: torch.distributed._shard.sharding_spec.api._infer_sharding_spec_from_shards_metadata, which compares neither
///         the other dimensions nor each shard's size with its offset
sharding_spec infer_sharding_spec_from_shards_metadata(const shard_metadata_list& shards);

/// Returns the length of every chunk but the last ones: ceil(dim_size / chunks).
/// Precondition: dim_size >= 0, chunks >= 1.
/// Source: torch.distributed._shard.sharding_spec._internals.get_split_size
constexpr std::int64_t split_size(std::int64_t dim_size, std::int64_t chunks) {
  return dim_size / chunks + (dim_size % chunks != 0 ? 1 : 0);
}

/// Returns the length of chunk `index` when chunks have `split_size`: the part of it that is within the dimension, at
/// least 0.
/// Precondition: all arguments are at least 0.
/// Source: torch.distributed._shard.sharding_spec._internals.get_chunked_dim_size
constexpr std::int64_t chunked_dim_size(std::int64_t dim_size, std::int64_t split_size, std::int64_t index) {
  if (split_size == 0 || index > dim_size / split_size) return 0;
  const std::int64_t left = dim_size - split_size * index;
  return left < split_size ? left : split_size;
}

/// Returns the begin and the length of a rank's (first) chunk.
/// \param rank  global rank, as placements name it
/// \errors errc::invalid_argument when no placement is on that rank (PyTorch then returns the last chunk's length at
///         offset 0), or when the rule does not fit
/// Source: torch.distributed._shard.sharding_spec._internals.get_chunk_sharding_params
result<index_range> chunk_sharding_params(std::int64_t dim_size, const chunk_sharding_spec& spec, std::int32_t rank);

}  // namespace shardmesh
