// SPDX-License-Identifier: Apache-2.0
// Metadata of a rank from its shards, and of the whole tensor from that of all ranks. Not here: exchanging it (init),
// offsets that are not known yet (recalculate).
export module shardmesh.sharding:build;

import shardmesh.std;
import shardmesh.transfer;
import :metadata;
import :shard;

namespace shardmesh::detail {

// What the checks of a local shard need, whatever its tensor type is.
struct local_shard_facts {
  const shard_metadata* metadata = nullptr;
  tensor_properties properties;
  extents sizes;
  std::optional<device> where;  // nothing for a nested shard, whose parts may be anywhere
  bool is_contiguous = true;
};

template <local_tensor T>
std::vector<local_shard_facts> facts_of(std::span<const shard<T>> shards) {
  std::vector<local_shard_facts> facts;
  facts.reserve(shards.size());
  for (const shard<T>& one : shards) {
    if (one.is_nested()) {
      facts.push_back({&one.metadata(), one.nested().metadata().properties, one.nested().size(), std::nullopt, true});
      continue;
    }
    const tensor_view view = adapter<T>::view(const_cast<T&>(one.tensor()));
    facts.push_back({&one.metadata(), properties_of(one.tensor()), view.sizes, view.where, is_contiguous(view)});
  }
  return facts;
}

std::vector<error> local_shard_problems(std::span<const local_shard_facts> shards, std::int32_t rank,
                                        const rank_group& group);
result<sharded_tensor_metadata> build_metadata(std::span<const local_shard_facts> shards, const extents& global_size,
                                               std::int32_t rank, const rank_group& group);

}  // namespace shardmesh::detail

export namespace shardmesh {

/// Everything that is wrong with a rank's own shards, in list order, each error naming the shard, the rank and the box;
/// `build_metadata_from_local_shards` gives the first. Arguments and checks as there.
template <local_tensor T>
std::vector<error> local_shard_problems(std::span<const shard<T>> shards, std::int32_t rank, const rank_group& group) {
  return detail::local_shard_problems(detail::facts_of(shards), rank, group);
}

/// Metadata of the whole tensor with this rank's shards only; combine with `build_global_metadata`.
/// Boxes are not compared with the global size or each other: that needs all ranks' shards.
/// \param shards       this rank's shards, at least one
/// \param global_size  sizes of the whole tensor (elements)
/// \param rank         this process in the group (group rank); placements name `group.global(rank)`
/// \errors errc::invalid_argument for no shards, a placement that is none, on another rank, on another device than the
///         tensor, unknown to the group; errc::shape_mismatch; errc::dtype_mismatch; errc::unsupported for a tensor
///         that is not strided or not row-major; properties that differ from the first shard's. The first is named with
///         shard, rank and box, the others are counted.
/// Cost: O(shards). No communication.
/// Source: torch.distributed._shard.sharded_tensor.utils.build_metadata_from_local_shards (keeps references, names the
///         first problem only)
template <local_tensor T>
result<sharded_tensor_metadata> build_metadata_from_local_shards(std::span<const shard<T>> shards,
                                                                 const extents& global_size, std::int32_t rank,
                                                                 const rank_group& group) {
  return detail::build_metadata(detail::facts_of(shards), global_size, rank, group);
}

/// The same from a vector, which deduces T.
template <local_tensor T>
result<sharded_tensor_metadata> build_metadata_from_local_shards(const std::vector<shard<T>>& shards,
                                                                 const extents& global_size, std::int32_t rank,
                                                                 const rank_group& group) {
  return build_metadata_from_local_shards(std::span<const shard<T>>(shards), global_size, rank, group);
}

struct global_metadata_options {
  bool recalculate = false;              // offsets along `dim` and the size there follow from the shards' sizes
  std::int32_t dim = 0;                  // of recalculation; negative counts from the last dimension
  std::optional<rank_group> group{};     // whose ranks the list is of, and placements must be in; default: 0, 1, 2 ...
  std::optional<extents> global_size{};  // known without any rank's metadata
  tensor_properties properties{};        // of a tensor of which no rank has metadata
};

/// Everything that is wrong between the ranks' metadata before boxes are compared: sizes and properties that differ
/// from those of the first rank that has any, shards on ranks that are not in the group. Cost: O(ranks + shards).
std::vector<error> global_metadata_problems(std::span<const std::optional<sharded_tensor_metadata>> gathered,
                                            const global_metadata_options& options = {});

/// Metadata of the whole tensor: the shards of all ranks in group order, each rank's in its own order.
/// \param gathered  per rank what `build_metadata_from_local_shards` gave it; nothing for a rank without shards
/// \errors errc::invalid_argument when no rank has metadata (and no empty tensor's size is known); those of
///         `global_metadata_problems`, the first named with both ranks and both values and the rest counted; those of
///         `recalc_global_sharded_tensor_metadata`; those of `check_tensor`
/// Cost: O(shards) when all is right. No communication.
/// Source: torch.distributed._shard.sharded_tensor.utils.build_global_metadata (compares neither layout nor memory
///         format; no shards on any rank is an error even of an empty tensor)
result<sharded_tensor_metadata> build_global_metadata(std::span<const std::optional<sharded_tensor_metadata>> gathered,
                                                      const global_metadata_options& options = {});

}  // namespace shardmesh
