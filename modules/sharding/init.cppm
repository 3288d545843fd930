// SPDX-License-Identifier: Apache-2.0
// A sharded tensor from what every rank holds, by one exchange of metadata. Not here: without communication
// (sharded_tensor::make), from a whole tensor (scatter).
export module shardmesh.sharding:init;

import shardmesh.std;
import shardmesh.transfer;
import :build;
import :metadata;
import :shard;

export namespace shardmesh {

/// What `init_from_local_shards` needs where shards do not tell. All but `call` is the same on every rank
/// (errc::disagreement).
struct init_options {
  std::int32_t dim = 0;            // that is cut, when the global size is not known; negative counts from the last
  tensor_properties properties{};  // of an empty tensor of which no rank has a shard
  call_options call{};
};

}  // namespace shardmesh

namespace shardmesh::detail {

struct agreed_metadata {
  sharded_tensor_metadata metadata;
  std::size_t first_local = 0;  // where this rank's shards begin in the list
};

result<agreed_metadata> agree_on_metadata(std::span<const local_shard_facts> shards,
                                          const std::optional<extents>& global_size, communicator_ref comm,
                                          const rank_group& group, const init_options& options);

}  // namespace shardmesh::detail

export namespace shardmesh {

/// A sharded tensor from the shards that every rank holds.
///
/// Collective: every rank of the communicator calls it; one all_gather of metadata (a few bytes per shard), and it
/// blocks. When anything is wrong on any rank or between ranks, every rank gets the same error and none waits: the
/// lowest rank's own problem first (`build_metadata_from_local_shards`), then what ranks disagree on, then the boxes
/// (`build_global_metadata`).
/// \param local_shards  this rank's shards, also none; they are moved, tensors are not copied; nested shards count as
///                      one box
/// \param global_size   sizes of the whole tensor (elements), equal on all ranks; nothing: shards follow one another
///                      along `options.dim` in rank order whatever their offsets say, as torchrec's row-wise tables
/// \param comm          its rank i is group rank i
/// \param group         the global ranks, which placements name; equal on all ranks
/// \errors those named above; errc::disagreement naming ranks and values; errc::bad_format for a message that is none;
///         those of `all_gather`
/// Cost: O(shards of all ranks) when all is right.
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
