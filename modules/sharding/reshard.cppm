// SPDX-License-Identifier: Apache-2.0
// reshard: cuts a sharded tensor in another way. Room transfer plans and runs transfers.
module;
#include <shardmesh/refuse.hpp>
export module shardmesh.sharding:reshard;

import shardmesh.std;
import shardmesh.transfer;
import :metadata;
import :shard_moves;
import :shard;
import :spec;

export namespace shardmesh {

/// Returns the tensor cut by another spec: along any dimension (negative ones count from the last), unevenly, over any
/// owners in the group, with several shards per rank, or by a list of shards. The given tensor does not change. New
/// shards are allocated on the devices of their placements.
///
/// Collective: every rank of the communicator calls it with the same spec; blocks. Only bytes that change owner travel.
/// Wrong arguments or a lack of memory on any rank give every rank the same error before anything moves.
/// \errors those of `build_metadata` and `distribution_of` for the spec; errc::unsupported (nested shards: flatten them
///         first; memory that no backend reaches); errors that `allocate` throws; errc::disagreement; those of the
///         communicator
/// Source: torch.distributed._shard.sharded_tensor.ShardedTensor.reshard, which takes chunk specs with one shard per
///         rank only. It hangs on permuted owners, and uneven destinations leave the other ranks waiting.
template <allocatable_tensor T>
result<sharded_tensor<T>> reshard(const sharded_tensor<T>& tensor, const sharding_spec& spec, communicator_ref comm,
                                  const call_options& call = {}) {
  std::vector<const_tensor_view> views = detail::views_of(tensor);
  auto from = distribution_of(tensor);
  if (auto movable =
          detail::check_movable(tensor.metadata(), views, tensor.nesting(), tensor.group(), tensor.rank(), comm);
      !movable)
    from = std::move(movable).error();
  return detail::moved_to<T>(spec, tensor.size(), tensor.metadata().properties, from, std::move(views), comm,
                             tensor.group(), "arguments of reshard", call.named("reshard"));
}

/// Refuses a tensor type that has no `allocate`.
template <local_tensor T>
  requires(!allocatable_tensor<T>)
result<sharded_tensor<T>> reshard(const sharded_tensor<T>& tensor, const sharding_spec& spec, communicator_ref comm,
                                  const call_options& call = {}) =
    SHARDMESH_REFUSE("resharding makes new tensors: give adapter<T> an allocate(dtype, sizes, device)");

}  // namespace shardmesh
