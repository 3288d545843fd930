// SPDX-License-Identifier: Apache-2.0
// Sharding specs: how a tensor of any size is to be cut (chunks along one dimension), or an explicit list of shards.
// Not here: cutting over meshes (layout), tensors (shard).
export module shardmesh.sharding:spec;

import shardmesh.std;
import shardmesh.transfer;
import :metadata;
import :metadata_like;

export namespace shardmesh {

/// Chunk i along a dimension lies on placement i; a placement may hold several. Negative dimensions count from the
/// last. Source: torch.distributed._shard.sharding_spec.ChunkShardingSpec.
struct chunk_sharding_spec {
  std::int32_t dim = 0;
  std::vector<remote_device> placements;
  split_rule rule{};  // PyTorch's is torch_chunk
  friend bool operator==(const chunk_sharding_spec&, const chunk_sharding_spec&) = default;
};

/// Exactly these shards.
/// Source: torch.distributed._shard.sharding_spec.EnumerableShardingSpec.
struct enumerable_sharding_spec {
  std::vector<shard_metadata> shards;
  friend bool operator==(const enumerable_sharding_spec&, const enumerable_sharding_spec&) = default;
};

/// Either of them. Source: torch.distributed._shard.sharding_spec.ShardingSpec.
using sharding_spec = std::variant<chunk_sharding_spec, enumerable_sharding_spec>;

/// "4 torch_chunk chunks along dimension 0 on rank:0/cpu, rank:1/cpu, .."; long lists are shortened.
std::string to_string(const chunk_sharding_spec& spec);
/// "2 shards: [0:2) on rank:0/cpu, [2:4) on rank:1/cpu"; long lists are shortened.
std::string to_string(const enumerable_sharding_spec& spec);
std::string to_string(const sharding_spec& spec);

/// The shards of a tensor of this size: one per chunk in the order of the placements, empty ones at the end of the
/// dimension (PyTorch puts them beyond it, where its own checks refuse them); or the listed ones.
/// \errors errc::out_of_bounds for a dimension that does not exist; errc::invalid_argument without placements or for a
///         rule that does not fit; those of `check_tensor` for listed shards; errc::overflow when the size is no
///         tensor's
/// Cost: O(shards), for a list as `check_tensor`.
/// Source: ChunkShardingSpec.build_metadata, EnumerableShardingSpec.build_metadata.
result<sharded_tensor_metadata> build_metadata(const sharding_spec& spec, const extents& size,
                                               const tensor_properties& properties = {});

/// What every rank of the group holds of a tensor of this size. By arithmetic when every chunk lies on a rank of its
/// own, whatever their number is; else from the list of shards. Owners are group ranks; the slot of a shard is its
/// position among its owner's shards.
/// \errors those of `build_metadata`; errc::invalid_argument for a placement that names no rank or one that is not in
///         the group
result<distribution> distribution_of(const sharding_spec& spec, const extents& size, const rank_group& group);

/// The chunk spec that makes these shards, when there is one (several shards, cut along one dimension by torch_chunk,
/// all placed; empty ones at the end of the dimension or beyond); else the list itself. Cost: O(n log n).
/// Source: torch.distributed._shard.sharding_spec.api._infer_sharding_spec_from_shards_metadata, which compares neither
/// the other dimensions nor which sizes lie at which offsets. Precondition: shards have at most `max_rank` dimensions.
sharding_spec infer_sharding_spec_from_shards_metadata(const shard_metadata_list& shards);

/// Length of every chunk but the last ones: ceil(dim_size / chunks). Precondition: dim_size >= 0, chunks >= 1.
/// Source: torch.distributed._shard.sharding_spec._internals.get_split_size.
constexpr std::int64_t split_size(std::int64_t dim_size, std::int64_t chunks) {
  return dim_size / chunks + (dim_size % chunks != 0 ? 1 : 0);
}

/// Length of chunk `index` when chunks have `split_size`: what is left of it within the dimension, at least 0.
/// Precondition: all at least 0. Source: torch.distributed._shard.sharding_spec._internals.get_chunked_dim_size.
constexpr std::int64_t chunked_dim_size(std::int64_t dim_size, std::int64_t split_size, std::int64_t index) {
  if (split_size == 0 || index > dim_size / split_size) return 0;
  const std::int64_t left = dim_size - split_size * index;
  return left < split_size ? left : split_size;
}

/// Where the (first) chunk of a rank begins and how long it is.
/// \param rank  global rank, as placements name it
/// \errors errc::invalid_argument when no placement is on that rank (PyTorch answers with the last chunk's length at
///         0), or the rule does not fit
/// Source: torch.distributed._shard.sharding_spec._internals.get_chunk_sharding_params.
result<index_range> chunk_sharding_params(std::int64_t dim_size, const chunk_sharding_spec& spec, std::int32_t rank);

}  // namespace shardmesh
