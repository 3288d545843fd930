// SPDX-License-Identifier: Apache-2.0
// state_names: which entry of an optimizer's state is of which parameter, by how writers spell their keys. Not here:
// what a selection makes of it (following), which entries are optimizer state at all (catalog's key_role).
export module shardmesh.checkpoint:state_names;

import shardmesh.std;

export namespace shardmesh {

/// How an entry of optimizer state names its parameter.
struct state_name {
  std::size_t parameter = 0;  // position of the parameter's key
  std::size_t prefix = 0;     // bytes of that key in front of the name that the optimizer has for it: of "model."
  std::size_t begin = 0;      // where that name begins in the entry's key; its size is that of the rest of the other
  friend bool operator==(const state_name&, const state_name&) = default;
};

/// The parameters of all optimizer state of a checkpoint, judged by all its keys. What is in front of "state." or
/// "param_groups." tells optimizers apart; each spells all its entries alike:
///
///     OPTIMIZER.state.PARAMETER.NAME          torch.distributed.checkpoint.state_dict, nested and flattened; FSDP
///     OPTIMIZER.param_groups.PARAMETER.FIELD  the same, flattened
///     OPTIMIZER.state.NAME.PARAMETER          Megatron, and DeepSpeed's folders as they are read here
///
/// and has one prefix with which its names are keys of the model (none, "model."): both are those that fit the most of
/// its entries. Where several parameters fit one entry, the longest name is meant. Numbers are positions, which stand
/// for no parameter; beside names (of the same optimizer's "state", or its "param_groups") they are names, too. Keys of
/// more than 256 components are state of nothing.
class state_names {
 public:
  /// The keys must outlive it. Cost: O(length of all keys), times components.
  explicit state_names(std::span<const std::string_view> keys);
  /// The parameter of the entry with this key (its position); none when it is no parameter's. Several where two
  /// prefixes fit equally well (a model and its average). Cost: O(length · components).
  std::vector<state_name> of(std::size_t key) const;
  /// True when the entry with this key belongs to an optimizer.
  bool is_state(std::size_t key) const { return is_state_[key]; }
  /// What stands in front of an optimizer's names in the model's keys, for an entry of its "param_groups" or "state";
  /// none where nothing says so.
  std::vector<std::string> prefixes_of(std::string_view key) const;

 private:
  struct spelling {
    bool is_name_last = false;
    bool state_has_names = false, groups_have_names = false;  // other than numbers
    std::vector<std::string_view> prefixes;                   // that fit equally well
  };
  void choose(const std::map<std::pair<bool, std::string_view>, std::size_t>& fitting, std::string_view optimizer);

  std::vector<std::string_view> keys_;
  std::vector<bool> is_state_;                                // per key
  std::unordered_map<std::string_view, std::size_t> others_;  // what parameters are among, by key
  std::unordered_map<std::string_view, spelling> optimizers_;
};

}  // namespace shardmesh
