// SPDX-License-Identifier: Apache-2.0
// Cuts tensors that every rank of a group holds whole, including tensors that tensor parallelism has already cut. No
// communication: each rank keeps its part. Parameters in flat memory are in save.
export module shardmesh.fsdp:chunk;

import shardmesh.std;
import shardmesh.sharding;

export namespace shardmesh {

/// Options for cutting a tensor over a group. The defaults are PyTorch's: dimension 0, cut by torch.chunk.
struct chunk_options {
  std::int32_t dim = 0;  // negative counts from the last; a scalar stays whole on the group's first rank
  split_rule rule{};
  // For other ranks' placements on devices other than the host: the device index is the global rank modulo this number.
  // 0: not known, so that placements name only the type. A rank's own placement is the device of its tensor.
  std::int32_t devices_per_node = 0;
};

/// Returns the box of each rank of a group, in group order. A scalar has one box only.
/// \errors errc::out_of_bounds (no such dimension), errc::invalid_argument (the rule does not fit; no parts)
/// Cost: O(parts).
result<std::vector<box>> chunk_boxes(const extents& shape, std::int32_t parts, const chunk_options& options = {});

/// Returns whether metadata lists this chunk. As with torch.chunk, metadata does not list an empty part of a dimension
/// that has elements.
bool is_listed_chunk(const box& chunk, const extents& shape);

/// Returns the metadata of the chunks that `chunk_boxes` makes. An empty part of a dimension that has elements is left
/// out; a tensor without rows has an empty shard on every rank. The devices have the type of `where` and each rank's
/// own index (`devices_per_node`).
/// \errors as above
/// Source: torch.distributed.fsdp._shard_utils._create_chunk_sharded_tensor
result<sharded_tensor_metadata> chunk_metadata(const extents& shape, const tensor_properties& properties,
                                               const rank_group& group, device where,
                                               const chunk_options& options = {});

/// Returns the metadata of a layout's shards as one rank sees it, exact for every placement list. A box that several
/// ranks hold is listed under this rank if it is one of them, else under the first. A strided shard is several boxes.
/// \param ranks  global ranks of the mesh's ranks; default: the same numbers
/// \param where  the device of this rank's tensor
/// \errors errc::mixed_partial (terms are not shards), errc::invalid_argument (fewer ranks than the mesh has), those of
///         `distribute`
/// Source: torch.distributed.tensor.parallel.fsdp._create_sharded_tensor_md_from_dt, _create_shard_md_from_dt, which
///         are right only for even shards of a 1-D mesh, and for coordinate 0
result<sharded_tensor_metadata> shards_of_layout(const layout& l, const tensor_properties& properties,
                                                 std::int32_t rank, const rank_group& ranks, device where,
                                                 std::int32_t devices_per_node = 0);

/// Returns the layout that FSDP over mesh dimension `fsdp_dim` gives a tensor: Shard(dim) there, all other placements
/// unchanged. On a (replicate, shard, tp) mesh, `fsdp_dim` is 1 for every tensor.
/// \errors errc::out_of_bounds (no such mesh or tensor dimension), errc::invalid_argument (`fsdp_dim` already cuts)
/// Source: torch.distributed.tensor.parallel.fsdp._chunk_dtensor, which cuts plain tensors on the first mesh dimension
result<layout> chunk_layout(const layout& l, std::size_t fsdp_dim, std::int32_t dim = 0);

/// Returns the layout after gathering over mesh dimension `fsdp_dim`: Replicate there.
/// Source: torch.distributed.tensor.parallel.fsdp._all_gather_dtensor
result<layout> gathered_layout(const layout& l, std::size_t fsdp_dim);

}  // namespace shardmesh

namespace shardmesh::detail {

// The caller's numbering of ranks, or 0 .. ranks - 1 for the default. errc::invalid_argument for a wrong number of
// ranks; with `may_be_more`, only for too few.
result<rank_group> numbering_of(const rank_group& given, std::int32_t ranks, bool may_be_more);

// The placement of another rank's shard, for a tensor that this rank has on `where`.
remote_device placement_of_other(std::int32_t global_rank, device where, std::int32_t devices_per_node);

// Checks that this rank has the same global number outside and inside a nested tensor.
result<void> check_one_name(std::int32_t outside, std::int32_t inside);

// Copies a box of a tensor into a new row-major tensor.
template <allocatable_tensor T>
result<T> copy_of(const T& tensor, const box& where) {
  if (auto plain = check_tensor(tensor); !plain) return std::move(plain).error();
  const const_tensor_view view = view_of(tensor);
  auto made = allocated<T>(view.type, where.sizes, view.where);
  if (!made) return made;
  if (auto copied = copy_between(adapter<T>::view(*made), subview(view, where)); !copied)
    return std::move(copied).error();
  return made;
}

}  // namespace shardmesh::detail

export namespace shardmesh {

/// Returns this rank's chunk of a tensor that every rank of the group holds.
/// \param rank  this process in the group
/// \errors as `chunk_metadata`; errc::invalid_argument when the rank is not in the group
/// Cost: a copy of the chunk. No communication.
/// Source: torch.distributed.fsdp._shard_utils._create_chunk_sharded_tensor
template <allocatable_tensor T>
result<sharded_tensor<T>> create_chunk_sharded_tensor(const T& tensor, std::int32_t rank, const rank_group& group,
                                                      const chunk_options& options = {}) {
  const const_tensor_view view = view_of(tensor);
  tensor_properties properties = properties_of(tensor);
  properties.requires_grad = false;
  auto metadata = chunk_metadata(view.sizes, properties, group, view.where, options);
  if (!metadata) return std::move(metadata).error();
  std::vector<shard<T>> own;
  for (shard_metadata& m : metadata->shards) {
    if (rank < 0 || rank >= group.size() || m.rank() != group.global(rank)) continue;
    m.placement->where = view.where;
    auto part = detail::copy_of(tensor, m.where());
    if (!part) return std::move(part).error();
    auto made = shard<T>::make(*std::move(part), m);
    if (!made) return std::move(made).error();
    own.push_back(*std::move(made));
  }
  return sharded_tensor<T>::make(std::move(own), *std::move(metadata), group, rank);
}

/// Chunks a tensor that is already sharded (by tensor parallelism): every local shard is chunked over the group and
/// becomes a nested shard. `flatten_nested_shards` (room state) flattens the result to one level.
/// \param group  the ranks that hold the same shards as this one; this process is its group rank `rank`
/// \errors as above; errc::unsupported for a shard that is itself nested; errc::invalid_argument when the group and the
///         tensor give this rank different global ranks
/// Source: torch.distributed.tensor.parallel.fsdp._chunk_tensor
template <allocatable_tensor T>
result<sharded_tensor<T>> chunk_tensor(const sharded_tensor<T>& tensor, std::int32_t rank, const rank_group& group,
                                       const chunk_options& options = {}) {
  if (rank >= 0 && rank < group.size())
    if (auto named = detail::check_one_name(tensor.group().global(tensor.rank()), group.global(rank)); !named)
      return std::move(named).error();
  std::vector<shard<T>> own;
  for (const shard<T>& outer : tensor.local_shards()) {
    if (outer.is_nested())
      return fail(errc::unsupported, "a shard that is sharded already is chunked at its innermost level only")
          .with_box(outer.metadata().where());
    auto inner = create_chunk_sharded_tensor<T>(outer.tensor(), rank, group, options);
    if (!inner) return std::move(inner).error();
    auto made = shard<T>::make(*std::move(inner), outer.metadata());
    if (!made) return std::move(made).error();
    own.push_back(*std::move(made));
  }
  sharded_tensor_metadata metadata = tensor.metadata();
  metadata.properties.requires_grad = false;
  return sharded_tensor<T>::make(std::move(own), std::move(metadata), tensor.group(), tensor.rank());
}

/// Chunks a dtensor: an outer sharded tensor with the exact boxes of its layout, chunked as above.
/// \param ranks  global ranks of the mesh's ranks; default: the same numbers. `group` has the same global ranks
template <allocatable_tensor T>
result<sharded_tensor<T>> chunk_tensor(const dtensor<T>& tensor, std::int32_t rank, const rank_group& group,
                                       const rank_group& ranks = {}, const chunk_options& options = {}) {
  if (!tensor.has_local())
    return fail(errc::invalid_argument, "a rank outside the mesh has nothing to chunk").with_rank(tensor.rank());
  const const_tensor_view view = view_of(tensor.local());
  tensor_properties properties = properties_of(tensor.local());
  properties.requires_grad = false;
  auto numbering = detail::numbering_of(ranks, tensor.layout().mesh().rank_limit(), true);
  if (!numbering) return std::move(numbering).error();
  if (rank >= 0 && rank < group.size())
    if (auto named = detail::check_one_name(numbering->global(tensor.rank()), group.global(rank)); !named)
      return std::move(named).error();
  auto metadata =
      shards_of_layout(tensor.layout(), properties, tensor.rank(), *numbering, view.where, options.devices_per_node);
  if (!metadata) return std::move(metadata).error();
  std::vector<shard<T>> own;
  const std::vector<placed_box> boxes = tensor.layout().boxes(tensor.rank());
  for (const shard_metadata& m : metadata->shards) {
    if (m.rank() != numbering->global(tensor.rank())) continue;
    for (const placed_box& b : boxes) {
      if (b.where != m.where()) continue;
      auto part = detail::copy_of(tensor.local(), {b.local_offsets, b.where.sizes});
      if (!part) return std::move(part).error();
      auto inner = create_chunk_sharded_tensor<T>(*part, rank, group, options);
      if (!inner) return std::move(inner).error();
      auto made = shard<T>::make(*std::move(inner), m);
      if (!made) return std::move(made).error();
      own.push_back(*std::move(made));
    }
  }
  return sharded_tensor<T>::make(std::move(own), *std::move(metadata), *std::move(numbering), tensor.rank());
}

}  // namespace shardmesh
