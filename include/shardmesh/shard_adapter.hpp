// SPDX-License-Identifier: Apache-2.0
// The customisation points for shards: the counterparts of `adapter<T>` for another framework's shards, their metadata,
// and whole sharded tensors. That framework's header specialises them without any `import`; `shardmesh.sharding`
// exports the same declarations.
#pragma once
#include <shardmesh/adapter.hpp>
#include <shardmesh/remote_device.hpp>
#include <shardmesh/tensor_properties.hpp>

namespace shardmesh {

/// Specialise for the metadata M of one shard:
///     template <> struct shardmesh::shard_metadata_adapter<my_metadata> {
///       static std::span<const std::int64_t> offsets(const my_metadata&);  // in the whole tensor, in elements
///       static std::span<const std::int64_t> sizes(const my_metadata&);
///       static std::optional<remote_device> placement(const my_metadata&);
///     };
/// Sizes and offsets of 64 bits are read in place; others are returned as `extents`, by value.
template <class M>
struct shard_metadata_adapter;

/// Specialise for the metadata M of a whole sharded tensor: the shards of every rank, in list order.
///     template <> struct shardmesh::sharded_tensor_metadata_adapter<my_tensor_metadata> {
///       static const std::vector<my_metadata>& shards(const my_tensor_metadata&);
///       static std::span<const std::int64_t> size(const my_tensor_metadata&);
///       static tensor_properties properties(const my_tensor_metadata&);
///     };
template <class M>
struct sharded_tensor_metadata_adapter;

/// Specialise for a shard S that this rank holds:
///     template <> struct shardmesh::shard_adapter<my_shard> {
///       static const my_metadata& metadata(const my_shard&);
///       static tensor_view view(const my_shard&);
///       static tensor_properties properties(const my_shard&);            // optional; else the view's dtype, defaults
///       static const my_sharded_tensor* nested(const my_shard&);         // optional; null: it holds a tensor
///     };
template <class S>
struct shard_adapter;

/// Specialise for a sharded tensor S: this rank's shards and the metadata of all shards.
///     template <> struct shardmesh::sharded_tensor_adapter<my_sharded_tensor> {
///       static const my_tensor_metadata& metadata(const my_sharded_tensor&);
///       static const std::vector<my_shard>& local_shards(const my_sharded_tensor&);  // in the metadata's order
///       static std::vector<std::int32_t> global_ranks(const my_sharded_tensor&);     // of its group, in group order
///       static std::int32_t rank(const my_sharded_tensor&);                          // of this process, in the group
///     };
template <class S>
struct sharded_tensor_adapter;

}  // namespace shardmesh
