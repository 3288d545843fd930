// SPDX-License-Identifier: Apache-2.0
// Builds the metadata of one rank's shards, and combines the metadata of all ranks into that of the whole tensor.
// Exchanging metadata is in init; computing offsets that are not known yet is in recalculate.
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

// The facts about a local shard that its checks need, whatever its tensor type is.
struct local_shard_facts {
  shard_metadata_view metadata;  // refers to the shard's metadata
  tensor_properties properties;
  extents sizes;
  std::optional<device> where;  // empty for a nested shard, whose parts may be on several devices
  bool is_contiguous = true;
};

// The sizes of a nested tensor. A tensor with too many dimensions gets sizes that no shard has.
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

/// Lists every problem of a rank's own shards, in list order. Each error about a shard names the shard, the rank, and
/// the box. The arguments and checks are those of `build_metadata_from_local_shards`, which returns the first of these
/// errors.
template <shard_range R>
std::vector<error> local_shard_problems(const R& shards, std::int32_t rank, const rank_group& group) {
  return detail::local_shard_problems(detail::facts_of(shards), rank, group);
}

/// Builds metadata of the whole tensor that lists this rank's shards only. `build_global_metadata` combines the
/// metadata of all ranks.
/// Boxes are not compared with the global size or with each other, because that requires the shards of all ranks.
/// \param shards       this rank's shards, at least one, of any `shard_like` type; they are only read
/// \param global_size  sizes of the whole tensor (elements)
/// \param rank         this process in the group (group rank); placements name `group.global(rank)`
/// \errors errc::invalid_argument without shards, or for a placement that is missing, unknown to the group, on another
///         rank, or on another device than the tensor; errc::shape_mismatch; errc::out_of_bounds for negative numbers;
///         errc::dtype_mismatch; errc::unsupported for a tensor that is not strided or not row-major; those of
///         `check_match` for properties that differ from the first shard's. The error names the first problem by shard,
///         rank, and box, and counts the others.
/// Cost: O(shards). No communication.
/// Source: torch.distributed._shard.sharded_tensor.utils.build_metadata_from_local_shards, which keeps references and
///         names only the first problem
template <shard_range R>
result<sharded_tensor_metadata> build_metadata_from_local_shards(const R& shards, const extents& global_size,
                                                                 std::int32_t rank, const rank_group& group) {
  return detail::build_metadata(detail::facts_of(shards), global_size, rank, group);
}

/// Refuses a list whose elements are not `shard_like`.
template <class R>
  requires(!shard_range<R>)
result<sharded_tensor_metadata> build_metadata_from_local_shards(const R& shards, const extents& global_size,
                                                                 std::int32_t rank, const rank_group& group) =
    SHARDMESH_REFUSE(
        "metadata is built from a list of shards: shardmesh::shard<T>, or a type of yours with a shard_adapter "
        "(shardmesh/shard_adapter.hpp)");

/// Options of `build_global_metadata`. By default, offsets are taken as they are.
struct global_metadata_options {
  bool recalculate = false;              // compute offsets along `dim`, and the size there, from the shards' sizes
  std::int32_t dim = 0;                  // dimension of the recalculation; negative counts from the last
  std::optional<rank_group> group{};     // ranks of the list, which placements must name; default: 0, 1, 2 ...
  std::optional<extents> global_size{};  // must agree with the ranks' metadata, and replaces it where no rank has any
  tensor_properties properties{};        // used where no rank has metadata
};

/// Lists every problem between the ranks' metadata that shows before boxes are compared: sizes and properties that
/// differ from those of the first rank with metadata, and shards on ranks outside the group.
/// Cost: O(ranks + shards).
std::vector<error> global_metadata_problems(const gathered_metadata& gathered,
                                            const global_metadata_options& options = {});

/// Combines the ranks' metadata into that of the whole tensor: the shards of all ranks in group order, each rank's in
/// its own order.
/// \param gathered  for each rank, its result of `build_metadata_from_local_shards` or other
///                  `sharded_tensor_metadata_like` metadata; empty for a rank without shards
/// \errors errc::invalid_argument when no rank has metadata, unless `options` gives the size of an empty tensor; the
///         first of `global_metadata_problems`, which names both ranks and both values, with a count of the others;
///         those of `recalc_global_sharded_tensor_metadata`; those of `check_tensor`
/// Cost: O(shards) when everything is right. No communication.
/// Source: torch.distributed._shard.sharded_tensor.utils.build_global_metadata, which compares neither layout nor
///         memory format, and refuses even an empty tensor when no rank has shards
result<sharded_tensor_metadata> build_global_metadata(const gathered_metadata& gathered,
                                                      const global_metadata_options& options = {});

}  // namespace shardmesh
