// SPDX-License-Identifier: Apache-2.0
// local_view for FSDP models: the flat shards themselves as the `local_state` of room tree, so that several ranks save
// and load them in place. Saving and loading are in collective_checkpoint; state dicts are in save and load.
export module shardmesh.fsdp:local_view;

import shardmesh.std;
import shardmesh.state;
import :model;

export namespace shardmesh {

/// Options of `local_view`.
struct local_view_options {
  path under{};  // path before every name, one level per key: {"model"} gives "model.layer.weight"
};

/// One rank's part of a model, in place. `local_view` makes it. The model's memory must outlive it. Move-only.
class local_model_view {
 public:
  local_model_view() = default;
  local_model_view(local_model_view&&) noexcept = default;
  local_model_view& operator=(local_model_view&&) noexcept = default;

  /// Returns the state that `save` and `start_save` write: every entry under each of its names, as in a state dict. It
  /// refers to the model's memory and to this value, and is valid until the next call.
  /// \errors those of `host_tensor::make` and `copy_between`, with the key, for a buffer with another `saved_type`
  /// Cost: O(names and boxes). Every call converts such buffers; no other element is copied.
  result<const_local_state> to_save();

  /// Returns the state that `load` fills: every entry once, in the dtype of its memory. A tied parameter has one memory
  /// and is requested under its own name. When `has` does not know that name, it is requested under the first other one
  /// that `has` knows.
  /// \param has  whether the checkpoint has an entry of that name (dots between levels)
  /// Cost: O(names and boxes). No elements are copied.
  local_state to_load(const std::function<bool(std::string_view key)>& has = {}) const;

 private:
  // A tensor whose saved dtype differs from its dtype in memory.
  struct converted_tensor {
    std::size_t name = 0;
    dtype type = dtype::undefined;
    host_tensor memory;
  };
  friend result<local_model_view> local_view(const fsdp_model& model, std::int32_t rank,
                                             const local_view_options& options);
  local_state names_;                 // all names, in the order of a state dict
  std::vector<std::size_t> same_as_;  // for each name, the index of the entry's own name
  std::vector<converted_tensor> converted_;
};

/// Returns one rank's part of a model, as views into its memory. A parameter is represented by its boxes in the rank's
/// flat shard: at most 2 * n - 1 for n dimensions, or more where columns of tensor parallelism cut at different places.
/// Buffers and ignored parameters are whole. No elements are copied, and no rank communicates.
/// `save` of the result writes the same values under the same names as `save` of a sharded state dict, but in different
/// boxes. `load` into the result needs no state dict. A rank outside a unit's group lists its parameters and holds
/// nothing of them. Replicas hold equal boxes.
/// \param rank  this process in the units' communicator
/// \errors those of `entries_of`; errc::out_of_bounds (no such rank), errc::invalid_argument (groups of different
///         communicators), errc::shape_mismatch and errc::dtype_mismatch (a shard that is not the flat parameter's),
///         each naming the key and the rank
/// Cost: O(entries * boxes); for units under tensor parallelism, O(entries * ranks * boxes).
/// Source: torch.distributed.fsdp._state_dict_utils, SHARDED_STATE_DICT, which copies every unit
result<local_model_view> local_view(const fsdp_model& model, std::int32_t rank, const local_view_options& options = {});

}  // namespace shardmesh
