// SPDX-License-Identifier: Apache-2.0
// redistribute: moves a dtensor to another layout, over the same mesh or another one. Room transfer plans and runs
// transfers.
module;
#include <shardmesh/refuse.hpp>
export module shardmesh.sharding:redistribute;

import shardmesh.std;
import shardmesh.transfer;
import :dtensor;
import :shard_moves;
import :shard;

namespace shardmesh::detail {

// Collective: agrees on the dtype among the ranks that hold a part, and reports it to those that hold nothing.
result<dtype> agreed_type(std::optional<dtype> mine, communicator_ref comm, const call_options& call);

// A tensor's two layouts, and this rank's memory in each: at most one view.
struct layout_change {
  const layout& from;
  const layout& to;
  dtype type = dtype::undefined;
  std::vector<const_tensor_view> source;
  std::vector<tensor_view> destination;
};

// Collective: `mine` is an error when this rank cannot take part; every rank then gets that error.
result<void> redistribute(layout_change work, const result<void>& mine, communicator_ref comm,
                          const redistribute_options& options);

}  // namespace shardmesh::detail

export namespace shardmesh {

/// Returns the tensor in another layout. Placements are arbitrary: shards of any dimension (strided, uneven, or empty),
/// replicas, and partials on either side. The target mesh may be the same, larger, smaller, overlapping, or disjoint.
/// The given tensor does not change. New memory is on the device of this rank's local tensor, or on the host if it has
/// none.
///
/// Collective: every rank of the communicator calls it with the same layouts, including ranks of neither mesh; blocks.
/// The meshes number ranks of the communicator. Only bytes that a rank needs and lacks travel, each once.
/// \errors errc::shape_mismatch (the layouts describe different tensors), errc::dtype_mismatch (local tensors differ;
///         names the ranks), errc::invalid_argument (no rank holds anything; a mesh has ranks beyond the communicator),
///         errc::unsupported (memory that no backend reaches), errors that `allocate` throws, each on every rank before
///         anything moves; errc::disagreement; those of the communicator
/// Source: torch.distributed.tensor.DTensor.redistribute, which stays within one mesh and handles its dimensions one
///         after the other
template <allocatable_tensor T>
result<dtensor<T>> redistribute(const dtensor<T>& tensor, const layout& to, communicator_ref comm,
                                const redistribute_options& options = {}) {
  std::vector<const_tensor_view> source;
  std::vector<tensor_view> destination;
  if (tensor.has_local()) source.push_back(view_of(tensor.local()));
  const auto type = detail::agreed_type(source.empty() ? std::nullopt : std::optional(source[0].type), comm,
                                        options.call.named("redistribute"));
  if (!type) return type.error();
  std::optional<T> local;
  result<void> mine;
  if (to.mesh().coordinate_of(comm.rank())) {
    auto made = detail::allocated<T>(*type, to.local_shape(comm.rank()), source.empty() ? device{} : source[0].where);
    if (made) {
      local = *std::move(made);
      destination.push_back(adapter<T>::view(*local));
    } else {
      mine = std::move(made).error();
    }
  }
  auto moved = detail::redistribute({tensor.layout(), to, *type, std::move(source), std::move(destination)}, mine, comm,
                                    options);
  if (!moved) return std::move(moved).error();
  return dtensor<T>::make(to, comm.rank(), std::move(local));
}

/// Refuses a tensor type that has no `allocate`.
template <local_tensor T>
  requires(!allocatable_tensor<T>)
result<dtensor<T>> redistribute(const dtensor<T>& tensor, const layout& to, communicator_ref comm,
                                const redistribute_options& options = {}) =
    SHARDMESH_REFUSE("a redistributed dtensor is a new one: give adapter<T> an allocate(dtype, sizes, device)");

}  // namespace shardmesh
