// SPDX-License-Identifier: Apache-2.0
// What gather, reshard and shard_tensor share: agreeing to begin, memory for new shards, and the way to the one planner
// and executor. For this room only.
export module shardmesh.sharding:shard_moves;

import shardmesh.std;
import shardmesh.transfer;
import :metadata;
import :shard;
import :spec;

namespace shardmesh::detail {

// The tensors of a sharded tensor's local shards: slot i is shard i. Empty views for nested shards, which
// `check_movable` refuses.
template <local_tensor T>
std::vector<const_tensor_view> views_of(const sharded_tensor<T>& tensor) {
  std::vector<const_tensor_view> views;
  for (const shard<T>& one : tensor.local_shards())
    views.push_back(one.is_nested() ? const_tensor_view{} : view_of(one.tensor()));
  return views;
}

// This rank's part can be moved: it is this communicator's, not nested, and of the dtype that the metadata says.
result<void> check_movable(const sharded_tensor_metadata& metadata, std::span<const const_tensor_view> views,
                           std::int32_t nesting, const rank_group& group, std::int32_t rank, communicator_ref comm);

}  // namespace shardmesh::detail

// Exported for room fsdp, whose calls make tensors before they talk, too.
export namespace shardmesh::detail {

// A tensor of the adapter's making, which is what was asked for, where a backend reaches it, as it is to be filled.
// What `allocate` throws is an error.
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

// A backend reaches all of them. errc::unsupported naming the device
result<void> check_reachable(std::span<const const_tensor_view> views);

// For all functions of this room that talk: rank i of the communicator is rank i of the group.
result<void> check_same_ranks(communicator_ref comm, const rank_group& group);

// Collective: all ranks go on, or all get the error of the lowest rank that has one (with its global rank), or what
// they disagree on (with ranks of the communicator, as the groups may be what differs). The group is compared too.
result<agreement_notes> begin(communicator_ref comm, const rank_group& group, std::string what,
                              std::vector<agreement_record> arguments, const result<void>& mine,
                              std::vector<std::byte> note, const call_options& call);

// Collective: brings what `to` wants from where `from` holds it. Slot i of a side is view i.
result<void> move(const distribution& from, const distribution& to, dtype type, std::vector<const_tensor_view> source,
                  std::vector<tensor_view> destination, communicator_ref comm, const call_options& call);

// One rank holds the whole, in slot 0.
result<distribution> all_on(std::int32_t rank, const extents& size, const rank_group& group);

// Where a tensor goes: its metadata by the spec, and who holds what.
struct destination {
  sharded_tensor_metadata metadata;
  distribution held;
};
result<destination> destination_of(const sharding_spec& spec, const extents& size, const tensor_properties& properties,
                                   const rank_group& group);

// New tensors for the shards of a rank, in list order.
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

// Collective: the tensor that `from` holds in `source`, cut by the spec into new tensors. `from` is an error when this
// rank cannot begin.
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
