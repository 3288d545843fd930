// SPDX-License-Identifier: Apache-2.0
// Metadata of one shard and of a whole sharded tensor, as in PyTorch's ShardMetadata, TensorProperties, and
// ShardedTensorMetadata. Tensors are in shard; checks over all shards are in validation.
export module shardmesh.sharding:metadata;

import shardmesh.std;
import shardmesh.transfer;

export namespace shardmesh {
/// Returns PyTorch's name: "strided", "sparse_coo" ...
std::string_view to_string(tensor_storage storage);
/// Returns PyTorch's name: "contiguous_format", "preserve_format", "channels_last", "channels_last_3d".
std::string_view to_string(memory_format format);
std::string to_string(const tensor_properties& properties);

/// The metadata of one shard: its box of the whole tensor (in elements), and the device that holds it. `placement`
/// names a global rank, a worker, only a device, or nothing. A plain value: `make` checks it, and so does every
/// function that takes one.
/// Source: torch.distributed._shard.metadata.ShardMetadata
struct shard_metadata {
  extents offsets, sizes;
  std::optional<remote_device> placement;

  /// Makes checked metadata.
  /// \param placement  "rank:1/cuda:0", "worker0/cpu", "cpu"; empty: none
  /// \errors errc::shape_mismatch when the numbers of offsets and sizes differ, errc::invalid_argument for a negative
  ///         number or an invalid placement, errc::overflow when an end does not fit in 64 bits, errc::rank_too_large
  static result<shard_metadata> make(std::span<const std::int64_t> offsets, std::span<const std::int64_t> sizes,
                                     std::string_view placement = {});

  box where() const { return {offsets, sizes}; }
  /// The global rank of the placement, if it names one.
  std::optional<std::int32_t> rank() const { return placement ? placement->rank : std::nullopt; }

  friend bool operator==(const shard_metadata&, const shard_metadata&) = default;
  friend auto operator<=>(const shard_metadata&, const shard_metadata&) = default;
};

/// Formats a shard: "[4:6, 0:8) on rank:1/cuda:0".
std::string to_string(const shard_metadata& shard);
std::size_t hash_value(const shard_metadata& shard);

/// The metadata of a whole sharded tensor: every shard of every rank, in list order.
/// Source: torch.distributed._shard.sharded_tensor.metadata.ShardedTensorMetadata
struct sharded_tensor_metadata {
  std::vector<shard_metadata> shards;
  extents size;
  tensor_properties properties;
  friend bool operator==(const sharded_tensor_metadata&, const sharded_tensor_metadata&) = default;
};

/// Formats the metadata: "[8, 4] float32 in 4 shards".
std::string to_string(const sharded_tensor_metadata& metadata);

}  // namespace shardmesh

export template <>
struct std::hash<shardmesh::shard_metadata> {
  std::size_t operator()(const shardmesh::shard_metadata& shard) const { return shardmesh::hash_value(shard); }
};
