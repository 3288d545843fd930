// SPDX-License-Identifier: Apache-2.0
// shard_tensor: a whole tensor of one rank, cut and dealt to all. Not here: from shards (init), what moves (room
// transfer).
export module shardmesh.sharding:shard_tensor;

import shardmesh.std;
import shardmesh.transfer;
import :metadata;
import :shard_moves;
import :shard;
import :spec;

export namespace shardmesh {

/// How `shard_tensor` is bounded: deadline and cancellation.
struct shard_tensor_options {
  call_options call{};
};

}  // namespace shardmesh

namespace shardmesh::detail {

// What the other ranks must know of the tensor.
struct tensor_facts {
  extents size;
  tensor_properties properties;
};

// Collective. `mine` is null where this rank has no tensor.
result<tensor_facts> facts_from(std::int32_t source_rank, const std::optional<tensor_facts>& mine,
                                communicator_ref comm, const rank_group& group, const call_options& call);

}  // namespace shardmesh::detail

export namespace shardmesh {

/// The tensor of one rank cut by a spec: every rank gets its shards as new tensors, on the devices of their placements.
///
/// Collective: every rank of the communicator calls it with the same spec; blocks. Wrong arguments on any rank give
/// every rank the same error before anything moves.
/// \param tensor       the whole, any strides, on the source rank; what others pass is not looked at and may be null
/// \param source_rank  in the group (group rank)
/// \errors errc::invalid_argument (no such rank, no tensor there), and those of `reshard`
/// Source: torch.distributed._shard._shard_tensor (chunk specs; fails on the last ranks when there are fewer chunks
///         than ranks)
template <allocatable_tensor T>
result<sharded_tensor<T>> shard_tensor(const T* tensor, const sharding_spec& spec, std::int32_t source_rank,
                                       communicator_ref comm, const rank_group& group,
                                       const shard_tensor_options& options = {}) {
  const bool is_source = comm.rank() == source_rank && tensor != nullptr;
  std::vector<const_tensor_view> source;
  std::optional<detail::tensor_facts> mine;
  result<void> plain;
  if (is_source) plain = check_tensor(*tensor);
  if (is_source && plain) {
    source.push_back(view_of(*tensor));
    mine = detail::tensor_facts{source.front().sizes, properties_of(*tensor)};
  }
  if (!plain) {  // the others wait for what it is
    comm.abort(plain.error());
    return std::move(plain).error().with_rank(source_rank);
  }
  auto facts = detail::facts_from(source_rank, mine, comm, group, options.call.named("shard_tensor"));
  if (!facts) return std::move(facts).error();
  return detail::moved_to<T>(spec, facts->size, facts->properties, detail::all_on(source_rank, facts->size, group),
                             std::move(source), comm, group, "arguments of shard_tensor",
                             options.call.named("shard_tensor"));
}

}  // namespace shardmesh
