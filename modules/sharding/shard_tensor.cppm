// SPDX-License-Identifier: Apache-2.0
// shard_tensor: cuts a whole tensor of one rank and sends every rank its shards. Making a sharded tensor from shards is
// in `init`; room transfer plans and runs transfers.
export module shardmesh.sharding:shard_tensor;

import shardmesh.std;
import shardmesh.transfer;
import :metadata;
import :shard_moves;
import :shard;
import :spec;

export namespace shardmesh {

/// Options of `shard_tensor`: its deadline and cancellation.
struct shard_tensor_options {
  call_options call{};
};

}  // namespace shardmesh

namespace shardmesh::detail {

// The facts that the other ranks need about the tensor.
struct tensor_facts {
  extents size;
  tensor_properties properties;
};

// Collective. `mine` is empty where this rank has no tensor.
result<tensor_facts> facts_from(std::int32_t source_rank, const std::optional<tensor_facts>& mine,
                                communicator_ref comm, const rank_group& group, const call_options& call);

}  // namespace shardmesh::detail

export namespace shardmesh {

/// Cuts the tensor of one rank by a spec. Every rank gets its shards as new tensors, on the devices of their
/// placements.
///
/// Collective: every rank of the communicator calls it with the same spec; blocks. Wrong arguments on any rank give
/// every rank the same error before anything moves.
/// \param tensor       on the source rank, the whole tensor, any strides; ignored on the other ranks, where it may be
///                     null
/// \param source_rank  group rank of the tensor's owner
/// \errors errc::invalid_argument (no such rank; no tensor there), and those of `reshard`
/// Source: torch.distributed._shard._shard_tensor, which takes only chunk specs, and fails on the last ranks when there
///         are fewer chunks than ranks
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
  if (!plain) {  // the other ranks wait for this rank's facts
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
