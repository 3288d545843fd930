// SPDX-License-Identifier: Apache-2.0
// planned_entry: the transfer of one entry of a state dict, and this rank's part of the result. Planned entries give
// the cost of a state dict before a byte moves. Allocating results and running transfers are in save.
export module shardmesh.fsdp:planned;

import shardmesh.std;
import shardmesh.sharding;
import :model;

export namespace shardmesh {

/// The form of an entry on this rank.
enum class entry_form : std::uint8_t { none, tensor, sharded_tensor, dtensor };

/// One entry of a state dict: the transfer that makes it, and this rank's part.
struct planned_entry {
  std::string key;
  extents shape;
  dtype type = dtype::undefined;
  std::optional<tensor_transfer> transfer;  // empty when no rank needs another's elements: `source` is copied
  std::optional<std::size_t> same_as{};     // earlier entry of the same parameter: copied from it, not moved
  const_tensor_binding source;              // this rank's memory for `transfer->from`, or the one view to copy
  entry_form form = entry_form::none;       // form of this rank's part
  extents local;                            // sizes of this rank's part
  bool has_part = false;                    // false: a sharded tensor of which this rank holds no shard
  device where;                             // device of this rank's part
  // For a sharded tensor:
  sharded_tensor_metadata metadata;
  rank_group group;
  std::int32_t group_rank = 0;
  std::size_t own_shard = 0;  // index of this rank's shard in the metadata, when has_part
  // For a dtensor:
  std::optional<layout> placed;
};

/// Options of a full state dict, which has whole tensors.
struct full_state_options {
  bool rank0_only = false;      // only `rank` gets parameters and buffers; others get only ignored tensors
  std::int32_t rank = 0;        // rank of the communicator
  bool offload_to_cpu = false;  // results in host memory
  std::int64_t memory_bytes = std::int64_t{256} << 20;  // limit of the results alive at a time
  call_options call{};
};

/// The form of the entries of a sharded state dict.
enum class sharded_form : std::uint8_t { sharded_tensor, dtensor };

/// Options of a sharded state dict. By default, each rank gets one shard of a dimension over the unit's group (PyTorch:
/// dimension 0, torch.chunk). Dtensors are over a mesh. For a unit that tensor parallelism also cuts, shards are chunks
/// of the parts that it left, and dtensors have the layout `parallel_parameters::sharded`.
struct sharded_state_options {
  sharded_form form = sharded_form::sharded_tensor;
  std::int32_t dim = 0;  // of sharded tensors; scalars stay whole on the group's first rank
  split_rule rule{};     // how the dimension is cut
  rank_group ranks{};    // for sharded tensors: global ranks of the communicator's ranks; default: the same numbers
  device_mesh mesh{};    // for dtensors, over ranks of the communicator; default: that of tensor parallelism
  // Default: as above on tensor parallelism's own mesh; on other meshes, Shard(dim) on the last dimension and Replicate
  // on the others.
  std::vector<placement> placements{};
  bool offload_to_cpu = false;
  std::int32_t devices_per_node = 0;  // for other ranks' placements, as in `chunk_options`
  std::int64_t memory_bytes = 0;      // limit of messages alive at a time, and of results when streaming; 0: default
  call_options call{};
};

/// Options of a local state dict: flat shards as they are, without the padding at their end. Nothing moves.
struct local_state_options {
  rank_group ranks{};  // global ranks of the communicator's ranks; default: the same numbers
  bool offload_to_cpu = false;
  std::int32_t devices_per_node = 0;  // for other ranks' placements, as in `chunk_options`
};

/// Plans the entries of a full state dict. Units that are not sharded are already whole on every rank, and stay so.
/// \param rank  this process in the communicator
/// \errors those of `entries_of`; errc::out_of_bounds (no such rank), errc::shape_mismatch and errc::dtype_mismatch (a
///         shard that is not the flat parameter's), each naming the key and the rank
/// Cost: O(entries * holders). No communication.
/// Source: torch.distributed.fsdp._state_dict_utils, FULL_STATE_DICT
result<std::vector<planned_entry>> plan_full(const fsdp_model& model, std::int32_t rank,
                                             const full_state_options& options = {});

/// Plans the entries of a sharded state dict. Units that are not sharded become tensors.
/// \errors as above; those of `layout::make`; errc::out_of_bounds (a tensor without dimension `dim`) naming the key
/// Source: torch.distributed.fsdp._state_dict_utils, SHARDED_STATE_DICT, which gathers every unit whole first
result<std::vector<planned_entry>> plan_sharded(const fsdp_model& model, std::int32_t rank,
                                                const sharded_state_options& options = {});

/// Plans the entries of a local state dict: one 1-D sharded tensor per sharded unit.
/// \errors as `entries_of`
/// Source: torch.distributed.fsdp._state_dict_utils, LOCAL_STATE_DICT, which needs an all-gather of pickles per unit
result<std::vector<planned_entry>> plan_local(const fsdp_model& model, std::int32_t rank,
                                              const local_state_options& options = {});

/// Combines the transfers of planned entries into one plan, with its bytes, lower bound, and peaks.
/// \errors those of `plan`
result<transfer_plan> plan_of(std::span<const planned_entry> entries, const plan_options& options = {});

}  // namespace shardmesh
