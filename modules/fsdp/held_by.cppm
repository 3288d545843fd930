// SPDX-License-Identifier: Apache-2.0
// held_by for FSDP models: the flat shards themselves as room tree's held_state, so that saving and loading on many
// ranks read and write them where they are. Not here: doing so (collective_checkpoint), state dicts (save, load).
export module shardmesh.fsdp:held_by;

import shardmesh.std;
import shardmesh.state;
import :model;

export namespace shardmesh {

/// Where the entries of a model lie in what is held.
struct held_model_options {
  path under{};  // in front of every name, a level each: {"model"} gives "model.layer.weight"
};

/// What one rank holds of a model, in place. `held_by` makes it; the model's memory outlives it. Move-only.
class held_model {
 public:
  held_model() = default;
  held_model(held_model&&) noexcept = default;
  held_model& operator=(held_model&&) noexcept = default;

  /// What `save` and `start_save` write: every entry under each of its names, as in a state dict. It looks into the
  /// model's memory and into this value, until the next call.
  /// \errors those of `host_tensor::make` and `copy_between`, with the key: of a buffer with another `saved_type`
  /// Cost: O(names and boxes). Such buffers are converted, anew at every call; no other element is copied.
  result<const_held_state> to_save();

  /// What `load` fills: every entry once, in the dtype that its memory has. A tied parameter is one memory: it is asked
  /// for by its own name, or by the first other one that `has` knows when it does not know that.
  /// \param has  whether the checkpoint has an entry of that name (dots between levels)
  /// Cost: O(names and boxes). No elements are copied.
  held_state to_load(const std::function<bool(std::string_view key)>& has = {}) const;

 private:
  // What is saved in another dtype than it is held in.
  struct converted_tensor {
    std::size_t name = 0;
    dtype type = dtype::undefined;
    host_tensor memory;
  };
  friend result<held_model> held_by(const fsdp_model& model, std::int32_t rank, const held_model_options& options);
  held_state names_;                  // every name, in the order of a state dict
  std::vector<std::size_t> same_as_;  // per name, the entry's own one
  std::vector<converted_tensor> converted_;
};

/// What a rank holds of a model: of every parameter the boxes that lie in its flat shards, each a view into them (at
/// most 2 * rank - 1 per parameter, more where columns of tensor parallelism are cut elsewhere); buffers and ignored
/// parameters whole. No elements are copied and nobody is asked: `save` of it writes the same values under the same
/// names as `save` of a sharded state dict, in other boxes, and `load` needs no state dict. A rank that is no member of
/// a unit's group knows its parameters and holds nothing of them; replicas hold equal boxes.
/// \param rank  this process in the units' communicator
/// \errors those of `entries_of`; errc::out_of_bounds (no such rank), errc::invalid_argument (groups of different
///         communicators), errc::shape_mismatch and errc::dtype_mismatch (a shard that is not the flat parameter's),
///         each naming the key and the rank
/// Cost: O(entries * boxes); of units under tensor parallelism O(entries * ranks * boxes).
/// Source: torch.distributed.fsdp._state_dict_utils, SHARDED_STATE_DICT (which copies every unit).
result<held_model> held_by(const fsdp_model& model, std::int32_t rank, const held_model_options& options = {});

}  // namespace shardmesh
