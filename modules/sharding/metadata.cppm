// SPDX-License-Identifier: Apache-2.0
// Metadata of shards and of whole sharded tensors: what PyTorch's ShardMetadata, TensorProperties and
// ShardedTensorMetadata say. Not here: tensors (shard), checks over all shards (validation).
export module shardmesh.sharding:metadata;

import shardmesh.std;
import shardmesh.transfer;

export namespace shardmesh {
/// PyTorch's names: "strided", "sparse_coo" ...
std::string_view to_string(tensor_storage storage);
/// PyTorch's names: "contiguous_format", "preserve_format", "channels_last", "channels_last_3d".
std::string_view to_string(memory_format format);
std::string to_string(const tensor_properties& properties);

/// One shard: its box of the whole tensor (in elements) and the device that holds it. `placement` names a global rank,
/// a worker, only a device, or nothing. A plain value: `make` checks, aggregates of your own are checked by every
/// function that takes them.
/// Source: torch.distributed._shard.metadata.ShardMetadata.
struct shard_metadata {
  extents offsets, sizes;
  std::optional<remote_device> placement;

  /// \param placement  "rank:1/cuda:0", "worker0/cpu", "cpu"; empty: none
  /// \errors errc::shape_mismatch when there are not as many offsets as sizes, errc::invalid_argument for a negative
  ///         number or a placement that is none, errc::overflow when an end does not fit, errc::rank_too_large
  static result<shard_metadata> make(std::span<const std::int64_t> offsets, std::span<const std::int64_t> sizes,
                                     std::string_view placement = {});

  box where() const { return {offsets, sizes}; }
  /// The global rank of the placement, or nothing.
  std::optional<std::int32_t> rank() const { return placement ? placement->rank : std::nullopt; }

  friend bool operator==(const shard_metadata&, const shard_metadata&) = default;
  friend auto operator<=>(const shard_metadata&, const shard_metadata&) = default;
};

/// "[4:6, 0:8) on rank:1/cuda:0".
std::string to_string(const shard_metadata& shard);
std::size_t hash_value(const shard_metadata& shard);

/// A whole sharded tensor: every shard of every rank, in list order.
/// Source: torch.distributed._shard.sharded_tensor.metadata.ShardedTensorMetadata.
struct sharded_tensor_metadata {
  std::vector<shard_metadata> shards;
  extents size;
  tensor_properties properties;
  friend bool operator==(const sharded_tensor_metadata&, const sharded_tensor_metadata&) = default;
};

/// "[8, 4] float32 in 4 shards".
std::string to_string(const sharded_tensor_metadata& metadata);

}  // namespace shardmesh

export template <>
struct std::hash<shardmesh::shard_metadata> {
  std::size_t operator()(const shardmesh::shard_metadata& shard) const { return shardmesh::hash_value(shard); }
};
