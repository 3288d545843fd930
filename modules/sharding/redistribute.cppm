// SPDX-License-Identifier: Apache-2.0
// redistribute: a dtensor laid out in another way, over the same mesh or another one. Not here: what moves (planned and
// run by room transfer).
module;
#include <shardmesh/refuse.hpp>
export module shardmesh.sharding:redistribute;

import shardmesh.std;
import shardmesh.transfer;
import :dtensor;
import :shard_moves;
import :shard;

namespace shardmesh::detail {

// Collective: the dtype that the ranks which hold something of the tensor agree on, for those that hold nothing.
result<dtype> agreed_type(std::optional<dtype> mine, communicator_ref comm, const call_options& call);

// Collective: `mine` is an error when this rank cannot go on; then every rank gets it.
result<void> redistribute(const layout& from, const layout& to, dtype type, std::vector<const_tensor_view> source,
                          std::vector<tensor_view> destination, const result<void>& mine, communicator_ref comm,
                          const redistribute_options& options);

}  // namespace shardmesh::detail

export namespace shardmesh {

/// The tensor in another layout: any placements (shards of any dimension, strided, uneven or empty; replicas; partials
/// to and from), on the same mesh, another one, larger, smaller, overlapping or disjoint. The tensor given stays as it
/// is; new memory is allocated where its local tensor is (on the host for ranks that have none).
///
/// Collective: every rank of the communicator calls it with the same layouts, also ranks of neither mesh; blocks. Ranks
/// of the meshes are ranks of the communicator. Only bytes that a rank wants and does not hold travel, each once.
/// \errors errc::shape_mismatch (the layouts are of different tensors), errc::dtype_mismatch (local tensors differ,
///         names the ranks), errc::invalid_argument (no rank holds anything; a mesh that the communicator is too small
///         for), errc::unsupported (memory that no backend reaches), what `allocate` throws, each on every rank before
///         anything moves; errc::disagreement; those of the communicator
/// Source: torch.distributed.tensor.DTensor.redistribute (within one mesh, one mesh dimension after the other)
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
  auto moved =
      detail::redistribute(tensor.layout(), to, *type, std::move(source), std::move(destination), mine, comm, options);
  if (!moved) return std::move(moved).error();
  return dtensor<T>::make(to, comm.rank(), std::move(local));
}

/// Of tensors that cannot be made.
template <local_tensor T>
  requires(!allocatable_tensor<T>)
result<dtensor<T>> redistribute(const dtensor<T>& tensor, const layout& to, communicator_ref comm,
                                const redistribute_options& options = {}) =
    SHARDMESH_REFUSE("a redistributed dtensor is a new one: give adapter<T> an allocate(dtype, sizes, device)");

}  // namespace shardmesh
