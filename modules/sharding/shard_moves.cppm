// SPDX-License-Identifier: Apache-2.0
// The common parts of gather, reshard, and shard_tensor: agreement before they begin, memory for new shards, and the
// calls of the planner and the executor. Only this room uses them, except for the exported part, which room fsdp also
// uses.
export module shardmesh.sharding:shard_moves;

import shardmesh.std;
import shardmesh.transfer;
import :metadata;
import :shard;
import :spec;

namespace shardmesh::detail {

// Views of the local shards of a sharded tensor: slot i is shard i. Nested shards get empty views; `check_movable`
// refuses them.
template <local_tensor T>
std::vector<const_tensor_view> views_of(const sharded_tensor<T>& tensor) {
  std::vector<const_tensor_view> views;
  for (const shard<T>& one : tensor.local_shards())
    views.push_back(one.is_nested() ? const_tensor_view{} : view_of(one.tensor()));
  return views;
}

// Checks that this rank's part can be moved: it belongs to this rank of the communicator, has no nested shards, has the
// dtype of the metadata, and is in memory that a backend reaches.
result<void> check_movable(const sharded_tensor_metadata& metadata, std::span<const const_tensor_view> views,
                           std::int32_t nesting, const rank_group& group, std::int32_t rank, communicator_ref comm);

}  // namespace shardmesh::detail

// Exported for room fsdp, which also allocates tensors before it communicates.
export namespace shardmesh::detail {

// Allocates a tensor through the adapter. It must have the requested dtype and sizes and be in memory that a backend
// reaches, because it is filled next. Exceptions of `allocate` become errors.
error allocation_failed(const extents& sizes, std::string why);
result<void> check_allocated(const const_tensor_view& made, dtype type, const extents& sizes);

template <allocatable_tensor T>
result<T> allocated(dtype type, const extents& sizes, device where) {
  try {
    T made = adapter<T>::allocate(type, sizes, where);
    if (auto valid = check_allocated(adapter<T>::view(made), type, sizes); !valid) return std::move(valid).error();
    return made;
  } catch (const exception& thrown) {
    return thrown.error();
  } catch (const std::exception& thrown) {
    return allocation_failed(sizes, thrown.what());
  } catch (...) {
    return allocation_failed(sizes, "an unknown exception");
  }
}

}  // namespace shardmesh::detail

namespace shardmesh::detail {

// Checks that a backend reaches all views. errc::unsupported naming the device
result<void> check_reachable(std::span<const const_tensor_view> views);

// Checks that the communicator and the group have the same size. In all collectives of this room, rank i of the
// communicator is rank i of the group.
result<void> check_same_ranks(communicator_ref comm, const rank_group& group);

// Collective: either all ranks continue, or all get the same error. It is the error of the lowest rank that has one,
// with its global rank, or else a disagreement. A disagreement names ranks of the communicator, because the groups are
// compared as well and may be what differs.
result<agreement_notes> begin(communicator_ref comm, const rank_group& group, std::string what,
                              std::vector<agreement_record> arguments, const result<void>& mine,
                              std::vector<std::byte> note, const call_options& call);

// Collective: moves the elements that `to` needs from the ranks that hold them in `from`. Slot i of a side is view i.
result<void> move(const distribution& from, const distribution& to, dtype type, std::vector<const_tensor_view> source,
                  std::vector<tensor_view> destination, communicator_ref comm, const call_options& call);

// The distribution in which one rank holds the whole tensor, in slot 0.
result<distribution> all_on(std::int32_t rank, const extents& size, const rank_group& group);

// The destination of a tensor: its metadata under the spec, and the distribution of its shards.
struct destination {
  sharded_tensor_metadata metadata;
  distribution held;
};
result<destination> destination_of(const sharding_spec& spec, const extents& size, const tensor_properties& properties,
                                   const rank_group& group);

// Allocates tensors for the shards of a rank, in list order.
template <allocatable_tensor T>
result<std::vector<shard<T>>> allocated_shards(const sharded_tensor_metadata& metadata, std::int32_t global_rank) {
  std::vector<shard<T>> made;
  for (const shard_metadata& one : metadata.shards) {
    if (one.rank() != global_rank) continue;
    auto tensor = allocated<T>(metadata.properties.type, one.sizes, one.placement->where);
    if (!tensor) return std::move(tensor).error();
    auto held = shard<T>::make(*std::move(tensor), one);
    if (!held) return std::move(held).error();
    made.push_back(*std::move(held));
  }
  return made;
}

// Collective: moves the tensor that `from` holds in `source` into new tensors, cut by the spec. `from` is an error when
// this rank cannot begin.
template <allocatable_tensor T>
result<sharded_tensor<T>> moved_to(const sharding_spec& spec, const extents& size, const tensor_properties& properties,
                                   const result<distribution>& from, std::vector<const_tensor_view> source,
                                   communicator_ref comm, const rank_group& group, std::string what,
                                   const call_options& call) {
  result<void> mine = from ? result<void>() : from.error();
  auto to = destination_of(spec, size, properties, group);
  if (mine && !to) mine = to.error();
  if (mine) mine = check_reachable(source);
  std::vector<shard<T>> shards;
  if (mine) {
    auto made = allocated_shards<T>(to->metadata, group.global(comm.rank()));
    if (made)
      shards = *std::move(made);
    else
      mine = std::move(made).error();
  }
  auto begun = begin(comm, group, std::move(what), {{"spec", to_string(spec)}}, mine, {}, call);
  if (!begun) return std::move(begun).error();
  std::vector<tensor_view> destination;
  for (shard<T>& one : shards) destination.push_back(view_of(one.tensor()));
  auto ran = move(*from, to->held, properties.type, std::move(source), std::move(destination), comm, call);
  if (!ran) return std::move(ran).error();
  return sharded_tensor<T>::make(std::move(shards), std::move(to->metadata), group, comm.rank());
}

}  // namespace shardmesh::detail
