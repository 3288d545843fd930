// SPDX-License-Identifier: Apache-2.0
// state_names: finds the parameter of each entry of optimizer state, from the way writers spell their keys. The effect
// on a selection is in optimizer_state_renames. The key_role of checkpoint_core decides which entries are optimizer
// state.
export module shardmesh.checkpoint:state_names;

import shardmesh.std;

export namespace shardmesh {

/// The place of a parameter's name in the key of an entry of optimizer state.
struct state_name {
  std::size_t parameter = 0;  // position of the parameter's key
  std::size_t prefix = 0;     // bytes of that key before the optimizer's name for the parameter: those of "model."
  std::size_t begin = 0;      // where that name begins in the entry's key; it is the rest of the parameter's key
  friend bool operator==(const state_name&, const state_name&) = default;
};

/// The parameters of all optimizer state of a checkpoint, inferred from all its keys. The text before "state." or
/// "param_groups." identifies an optimizer. An optimizer spells all its entries in the same way:
///
///     OPTIMIZER.state.PARAMETER.NAME          torch.distributed.checkpoint.state_dict, nested and flattened; FSDP
///     OPTIMIZER.param_groups.PARAMETER.FIELD  the same, flattened
///     OPTIMIZER.state.NAME.PARAMETER          Megatron, and DeepSpeed's folders as they are read here
///
/// It also has one prefix that turns its names into keys of the model (none, or "model."). The spelling and the prefix
/// that fit the most entries are chosen. If several parameters fit one entry, the longest name wins. Numbers are
/// positions and name no parameter, unless the same optimizer's "state" (or its "param_groups") has other names as
/// well. Keys of more than 256 components belong to no parameter.
class state_names {
 public:
  /// The keys must outlive this. Cost: O(length of all keys · components).
  explicit state_names(std::span<const std::string_view> keys);
  /// Returns the parameter of the entry at position `key`: none when the entry belongs to no parameter, several when
  /// two prefixes fit equally well (a model and its average). Cost: O(length · components).
  std::vector<state_name> of(std::size_t key) const;
  /// Returns true when the entry at position `key` belongs to an optimizer.
  bool is_state(std::size_t key) const { return is_state_[key]; }
  /// Returns the prefixes of an optimizer's names in the model's keys, given the key of an entry of its "param_groups"
  /// or "state". Empty when no key reveals a prefix.
  std::vector<std::string> prefixes_of(std::string_view key) const;

 private:
  struct spelling {
    bool is_name_last = false;
    bool state_has_names = false, groups_have_names = false;  // names other than numbers
    std::vector<std::string_view> prefixes;                   // all that fit equally well
  };
  void choose(const std::map<std::pair<bool, std::string_view>, std::size_t>& fitting, std::string_view optimizer);

  std::vector<std::string_view> keys_;
  std::vector<bool> is_state_;                                // per key
  std::unordered_map<std::string_view, std::size_t> others_;  // keys that may be parameters, with their positions
  std::unordered_map<std::string_view, spelling> optimizers_;
};

}  // namespace shardmesh
