// SPDX-License-Identifier: Apache-2.0
// gather: copies a whole tensor to one rank from the shards of all ranks. Room transfer plans and runs transfers;
// `reshard` cuts a tensor in another way.
module;
#include <shardmesh/refuse.hpp>
export module shardmesh.sharding:gather;

import shardmesh.std;
import shardmesh.transfer;
import :metadata;
import :shard_moves;
import :shard;

export namespace shardmesh {

/// Options of `gather`: its limits (deadline, cancellation), and the device of the tensor that it makes (default: the
/// host).
struct gather_options {
  device where{};  // device of the new tensor, when one is made
  call_options call{};
};

}  // namespace shardmesh

namespace shardmesh::detail {

struct movable_tensor {
  const sharded_tensor_metadata& metadata;
  const rank_group& group;
  std::int32_t rank = 0;
  std::int32_t nesting = 0;
  std::vector<const_tensor_view> views;
};

template <local_tensor T>
movable_tensor movable(const sharded_tensor<T>& tensor) {
  return {tensor.metadata(), tensor.group(), tensor.rank(), tensor.nesting(), views_of(tensor)};
}

result<void> gather(movable_tensor tensor, std::int32_t destination_rank,
                    const result<std::optional<tensor_view>>& destination, communicator_ref comm,
                    const call_options& call);

}  // namespace shardmesh::detail

export namespace shardmesh {

/// Copies the whole tensor into an existing tensor on one rank. Values are exact for every dtype, because no buffer of
/// another type is involved.
///
/// Collective: every rank of the communicator calls it; blocks. Only bytes that the destination rank lacks travel, and
/// only that rank receives. Wrong arguments on any rank give every rank the same error before anything moves, and the
/// communicator stays usable.
/// \param destination_rank  group rank in the tensor's group
/// \param destination       on that rank, a view with the tensor's sizes and dtype, any strides; on the others, nothing
/// \errors errc::invalid_argument (a destination that is missing or on another rank, a rank outside the group),
///         errc::shape_mismatch, errc::dtype_mismatch, errc::unsupported (nested shards: flatten them first; memory
///         that no backend reaches), errc::gap, errc::disagreement, those of the communicator
/// Source: torch.distributed._shard.sharded_tensor.ShardedTensor.gather, which goes through a float32 buffer and fails
///         on sub-groups and scalars
template <local_tensor T>
result<void> gather(const sharded_tensor<T>& tensor, std::int32_t destination_rank,
                    const std::optional<tensor_view>& destination, communicator_ref comm,
                    const gather_options& options = {}) {
  return detail::gather(detail::movable(tensor), destination_rank, destination, comm, options.call.named("gather"));
}

/// Copies the whole tensor into a new tensor on the destination rank; the other ranks get nothing.
/// \errors as above, and errors that `allocate` throws, on every rank
template <allocatable_tensor T>
result<std::optional<T>> gather(const sharded_tensor<T>& tensor, std::int32_t destination_rank, communicator_ref comm,
                                const gather_options& options = {}) {
  std::optional<T> made;
  result<std::optional<tensor_view>> destination{std::optional<tensor_view>()};
  if (tensor.rank() == destination_rank) {
    auto whole = detail::allocated<T>(tensor.metadata().properties.type, tensor.size(), options.where);
    if (whole) {
      made = *std::move(whole);
      destination = std::optional(adapter<T>::view(*made));
    } else {
      destination = std::move(whole).error();
    }
  }
  auto ran = detail::gather(detail::movable(tensor), destination_rank, destination, comm, options.call.named("gather"));
  if (!ran) return std::move(ran).error();
  return made;
}

/// Refuses a tensor type that has no `allocate`.
template <local_tensor T>
  requires(!allocatable_tensor<T>)
result<std::optional<T>> gather(const sharded_tensor<T>& tensor, std::int32_t destination_rank, communicator_ref comm,
                                const gather_options& options = {}) =
    SHARDMESH_REFUSE(
        "this gather makes a new tensor: give adapter<T> an allocate(dtype, sizes, device), or give the "
        "destination's view");

}  // namespace shardmesh
