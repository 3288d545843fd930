// SPDX-License-Identifier: Apache-2.0
// Metadata of a rank from its shards, and of the whole tensor from that of all ranks. Not here: exchanging it (init),
// offsets that are not known yet (recalculate).
module;
#include <shardmesh/refuse.hpp>
#include <shardmesh/shard_adapter.hpp>
export module shardmesh.sharding:build;

import shardmesh.std;
import shardmesh.transfer;
import :metadata;
import :metadata_like;
import :shard_like;

namespace shardmesh::detail {

// What the checks of a local shard need, whatever its tensor type is.
struct local_shard_facts {
  shard_metadata_view metadata;  // refers to the shard's
  tensor_properties properties;
  extents sizes;
  std::optional<device> where;  // nothing for a nested shard, whose parts may be anywhere
  bool is_contiguous = true;
};

// The sizes of a nested tensor; of one of too many dimensions what no shard has.
extents sizes_of_nested(const sharded_tensor_metadata_view& nested);

template <shard_range R>
std::vector<local_shard_facts> facts_of(const R& shards) {
  using S = std::remove_cvref_t<std::ranges::range_reference_t<const R>>;
  std::vector<local_shard_facts> facts;
  facts.reserve(static_cast<std::size_t>(std::ranges::size(shards)));
  for (const S& one : shards) {
    const shard_metadata_view metadata = shard_adapter<S>::metadata(one);
    if constexpr (can_be_nested<S>) {
      if (const auto* nested = nested_in(one)) {
        using N = std::remove_cvref_t<decltype(*nested)>;
        const sharded_tensor_metadata_view inside = sharded_tensor_adapter<N>::metadata(*nested);
        facts.push_back({metadata, inside.properties(), sizes_of_nested(inside), std::nullopt, true});
        continue;
      }
    }
    const const_tensor_view view = view_of_shard(one);
    facts.push_back({metadata, properties_of_shard(one), view.sizes, view.where, is_contiguous(view)});
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
template <shard_range R>
std::vector<error> local_shard_problems(const R& shards, std::int32_t rank, const rank_group& group) {
  return detail::local_shard_problems(detail::facts_of(shards), rank, group);
}

/// Metadata of the whole tensor with this rank's shards only; combine with `build_global_metadata`.
/// Boxes are not compared with the global size or each other: that needs all ranks' shards.
/// \param shards       this rank's shards, at least one, of any type: a list of `shard_like`; only looked at
/// \param global_size  sizes of the whole tensor (elements)
/// \param rank         this process in the group (group rank); placements name `group.global(rank)`
/// \errors errc::invalid_argument for no shards, a placement that is none, on another rank, on another device than the
///         tensor, unknown to the group; errc::shape_mismatch; errc::dtype_mismatch; errc::unsupported for a tensor
///         that is not strided or not row-major; properties that differ from the first shard's. The first is named with
///         shard, rank and box, the others are counted.
/// Cost: O(shards). No communication.
/// Source: torch.distributed._shard.sharded_tensor.utils.build_metadata_from_local_shards (keeps references, names the
///         first problem only)
template <shard_range R>
result<sharded_tensor_metadata> build_metadata_from_local_shards(const R& shards, const extents& global_size,
                                                                 std::int32_t rank, const rank_group& group) {
  return detail::build_metadata(detail::facts_of(shards), global_size, rank, group);
}

/// A list of something else.
template <class R>
  requires(!shard_range<R>)
result<sharded_tensor_metadata> build_metadata_from_local_shards(const R& shards, const extents& global_size,
                                                                 std::int32_t rank, const rank_group& group) =
    SHARDMESH_REFUSE(
        "metadata is built from a list of shards: shardmesh::shard<T>, or a type of yours with a shard_adapter "
        "(shardmesh/shard_adapter.hpp)");

/// What `build_global_metadata` is told beside the ranks' metadata. By default offsets are taken as they are.
struct global_metadata_options {
  bool recalculate = false;              // offsets along `dim` and the size there follow from the shards' sizes
  std::int32_t dim = 0;                  // of recalculation; negative counts from the last dimension
  std::optional<rank_group> group{};     // whose ranks the list is of, and placements must be in; default: 0, 1, 2 ...
  std::optional<extents> global_size{};  // known without any rank's metadata
  tensor_properties properties{};        // of a tensor of which no rank has metadata
};

/// Everything that is wrong between the ranks' metadata before boxes are compared: sizes and properties that differ
/// from those of the first rank that has any, shards on ranks that are not in the group. Cost: O(ranks + shards).
std::vector<error> global_metadata_problems(const gathered_metadata& gathered,
                                            const global_metadata_options& options = {});

/// Metadata of the whole tensor: the shards of all ranks in group order, each rank's in its own order.
/// \param gathered  per rank what `build_metadata_from_local_shards` gave it, or metadata of another type that is
///                  `sharded_tensor_metadata_like`; nothing for a rank without shards
/// \errors errc::invalid_argument when no rank has metadata (and no empty tensor's size is known); those of
///         `global_metadata_problems`, the first named with both ranks and both values and the rest counted; those of
///         `recalc_global_sharded_tensor_metadata`; those of `check_tensor`
/// Cost: O(shards) when all is right. No communication.
/// Source: torch.distributed._shard.sharded_tensor.utils.build_global_metadata (compares neither layout nor memory
///         format; no shards on any rank is an error even of an empty tensor)
result<sharded_tensor_metadata> build_global_metadata(const gathered_metadata& gathered,
                                                      const global_metadata_options& options = {});

}  // namespace shardmesh
