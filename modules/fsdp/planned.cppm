// SPDX-License-Identifier: Apache-2.0
// planned_entry: for each entry of a state dict, who holds it, who gets which part, and what this rank's part is. What
// a state dict costs is known from here before a byte moves. Not here: memory for the results, running (save).
export module shardmesh.fsdp:planned;

import shardmesh.std;
import shardmesh.sharding;
import :model;

export namespace shardmesh {

/// What an entry becomes on this rank.
enum class entry_form : std::uint8_t { none, tensor, sharded_tensor, dtensor };

/// One entry of a state dict: the transfer that makes it, and this rank's part.
struct planned_entry {
  std::string key;
  extents shape;
  dtype type = dtype::undefined;
  std::optional<tensor_transfer> transfer;  // nothing when no rank needs another's elements: `source` is copied
  std::optional<std::size_t> same_as{};     // another name of that earlier entry, of which it is copied: nothing moves
  const_tensor_binding source;              // this rank's memory of `transfer->from`, or the one view to copy
  entry_form form = entry_form::none;       // of this rank's part
  extents local;                            // its sizes
  bool has_part = false;                    // false: a sharded tensor of which this rank holds no shard
  device where;                             // of its memory
  // Of a sharded tensor:
  sharded_tensor_metadata metadata;
  rank_group group;
  std::int32_t group_rank = 0;
  std::size_t own_shard = 0;  // which of the metadata's shards is this rank's, when has_part
  // Of a dtensor:
  std::optional<layout> placed;
};

/// Whole tensors.
struct full_state_options {
  bool rank0_only = false;      // only `rank` gets parameters and buffers; the others what FSDP ignores
  std::int32_t rank = 0;        // of the communicator
  bool offload_to_cpu = false;  // results in host memory
  std::int64_t memory_bytes = std::int64_t{256} << 20;  // results and messages alive at a time while streaming
  call_options call{};
};

/// What a sharded state dict consists of.
enum class sharded_form : std::uint8_t { sharded_tensor, dtensor };

/// Shards, one per rank: of a dimension over the unit's group (PyTorch: dimension 0, torch.chunk), or of a mesh. Of
/// units that tensor parallelism cuts: chunks of what it left of the dimension, or `parallel_parameters::sharded`.
struct sharded_state_options {
  sharded_form form = sharded_form::sharded_tensor;
  std::int32_t dim = 0;  // of sharded tensors; scalars are held whole by the group's first rank
  split_rule rule{};     // how it is cut
  rank_group ranks{};    // of sharded tensors: global ranks of the communicator's; none given: numbered alike
  device_mesh mesh{};    // of dtensors: over ranks of the communicator; none: that of tensor parallelism
  // Empty: on tensor parallelism's own mesh as said above, else Shard(dim) on the last dimension, Replicate on others.
  std::vector<placement> placements{};
  bool offload_to_cpu = false;
  std::int32_t devices_per_node = 0;  // of other ranks' placements, as of `chunk_options`
  std::int64_t memory_bytes = 0;      // of messages alive at a time, and of results while streaming; 0: the default
  call_options call{};
};

/// Flat shards as they are, without the padding at their end. Nothing moves.
struct local_state_options {
  rank_group ranks{};  // global ranks of the communicator's; none given: numbered alike
  bool offload_to_cpu = false;
  std::int32_t devices_per_node = 0;  // of other ranks' placements, as of `chunk_options`
};

/// What each entry of a full state dict takes. Units that are not sharded are whole on every rank already and stay so.
/// \param rank  this process in the communicator
/// \errors those of `entries_of`; errc::out_of_bounds (no such rank), errc::shape_mismatch and errc::dtype_mismatch
///         (a shard that is not the flat parameter's), each naming the key and the rank
/// Cost: O(entries * holders). No communication.
/// Source: torch.distributed.fsdp._state_dict_utils, FULL_STATE_DICT.
result<std::vector<planned_entry>> plan_full(const fsdp_model& model, std::int32_t rank,
                                             const full_state_options& options = {});

/// What each entry of a sharded state dict takes. Units that are not sharded give tensors.
/// \errors as above; those of `layout::make`; errc::out_of_bounds (a tensor without dimension `dim`) naming the key
/// Source: torch.distributed.fsdp._state_dict_utils, SHARDED_STATE_DICT (which gathers every unit whole first).
result<std::vector<planned_entry>> plan_sharded(const fsdp_model& model, std::int32_t rank,
                                                const sharded_state_options& options = {});

/// The entries of a local state dict: per sharded unit one 1-D sharded tensor. \errors as `entries_of`
/// Source: torch.distributed.fsdp._state_dict_utils, LOCAL_STATE_DICT (which needs an all-gather of pickles per unit).
result<std::vector<planned_entry>> plan_local(const fsdp_model& model, std::int32_t rank,
                                              const local_state_options& options = {});

/// The transfers of planned entries as one plan: bytes, lower bound, peaks. \errors those of `plan`
result<transfer_plan> plan_of(std::span<const planned_entry> entries, const plan_options& options = {});

}  // namespace shardmesh
