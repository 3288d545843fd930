// SPDX-License-Identifier: Apache-2.0
// init_from_local_shards: makes a sharded tensor from the shards of every rank, with one exchange of metadata.
// `sharded_tensor::make` makes one without communication, and `shard_tensor` makes one from a whole tensor.
export module shardmesh.sharding:init;

import shardmesh.std;
import shardmesh.transfer;
import :build;
import :metadata;
import :shard;

export namespace shardmesh {

/// Options of `init_from_local_shards`: facts that the shards do not contain. All but `call` must be equal on every
/// rank (errc::disagreement).
struct init_options {
  std::int32_t dim = 0;  // sharded dimension, when the global size is not known; negative counts from the last
  tensor_properties properties{};  // of an empty tensor of which no rank has a shard
  call_options call{};
};

}  // namespace shardmesh

namespace shardmesh::detail {

struct agreed_metadata {
  sharded_tensor_metadata metadata;
  std::size_t first_local = 0;  // position of this rank's first shard in the list
};

result<agreed_metadata> agree_on_metadata(std::span<const local_shard_facts> shards,
                                          const std::optional<extents>& global_size, communicator_ref comm,
                                          const rank_group& group, const init_options& options);

}  // namespace shardmesh::detail

export namespace shardmesh {

/// Makes a sharded tensor from the shards that every rank holds.
///
/// Collective: every rank of the communicator calls it; blocks. The ranks exchange metadata (a few bytes per shard) in
/// one all_gather. A problem on any rank, or between ranks, gives every rank the same error, and no rank keeps waiting.
/// The lowest rank's own problem comes first (`build_metadata_from_local_shards`), then disagreements between ranks,
/// then the boxes (`build_global_metadata`).
/// \param local_shards  this rank's shards, possibly none; moved, so no tensor is copied; a nested shard counts as one
///                      box
/// \param global_size   sizes of the whole tensor (elements), equal on all ranks. Empty: shards follow one another
///                      along `options.dim` in rank order, whatever their offsets are, as in torchrec's row-wise tables
/// \param comm          a communicator whose rank i is group rank i
/// \param group         the global ranks, which placements name; equal on all ranks
/// \errors those named above; errc::disagreement naming ranks and values; errc::bad_format for a message that cannot be
///         read; those of `all_gather`
/// Cost: O(shards of all ranks) when everything is right.
/// Source: torch.distributed._shard.sharded_tensor.ShardedTensor._init_from_local_shards
template <local_tensor T>
result<sharded_tensor<T>> init_from_local_shards(std::vector<shard<T>> local_shards,
                                                 const std::optional<extents>& global_size, communicator_ref comm,
                                                 const rank_group& group, const init_options& options = {}) {
  const auto facts = detail::facts_of(std::span<const shard<T>>(local_shards));
  auto agreed = detail::agree_on_metadata(facts, global_size, comm, group, options);
  if (!agreed) return std::move(agreed).error();
  std::vector<shard<T>> placed;
  placed.reserve(local_shards.size());
  for (std::size_t i = 0; i < local_shards.size(); ++i) {
    auto moved = std::move(local_shards[i]).with_metadata(agreed->metadata.shards[agreed->first_local + i]);
    if (!moved) return std::move(moved).error();
    placed.push_back(*std::move(moved));
  }
  return sharded_tensor<T>::make(std::move(placed), std::move(agreed->metadata), group, comm.rank());
}

}  // namespace shardmesh
