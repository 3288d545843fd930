// SPDX-License-Identifier: Apache-2.0
// key_role: whether an entry of a training checkpoint belongs to the model, to an optimizer or to neither, judged by
// the structure of all its keys. Not here: which entries a command takes (selection).
export module shardmesh.catalog:key_role;

import shardmesh.std;

export namespace shardmesh {

/// `other`: random number generators, schedulers, counters and whatever else a trainer keeps.
enum class key_role : std::uint8_t { model, optimizer, other };

/// The roles of a checkpoint's keys. One key often cannot say ("state.model.w" is a weight in a checkpoint of Composer,
/// and the state of the parameter "model.w" in an optimizer's own): so all keys are added first, then asked.
///
/// Optimizer: what lies below a component "optimizer_states", "optimizer_state_dict" and the like that is the first, or
/// follows a trainer's own prefix ("state.", "trainer.", "chained_0.", "mimo.NAME."); below "optim", "optimizer",
/// "optimizer_0" or "opt" there, which a module could be called as well, where something has "state", "param_groups" or
/// "exp_avg" in its key; what lies in "param_groups" that have fields of an
/// optimizer ("lr", "params"), or in a "state" beside them; and entries
/// STATE.PARAMETER.NAME, in a checkpoint in which nothing of that is, of a "state" that has "exp_avg",
/// "momentum_buffer" and their kind, or a "step", for every parameter: a "state" with other things in it is a module
/// that has such names of its own. A key that nothing of this fits is of the model: leaving too much in is mended by a
/// second run, a weight that is dropped is not. Sources: torch.distributed.checkpoint.state_dict, torch.optim,
/// composer/core/state.py, megatron/core/optimizer, lightning, deepspeed, torchtitan, torchtune.
class key_roles {
 public:
  /// Cost: O(length).
  void add(std::string_view key);
  /// Of a key that was added or not. Cost: O(length · components).
  key_role role_of(std::string_view key) const;

 private:
  // What is known of the entries STATE.PARAMETER.* of a "state".
  struct group {
    bool has_certain_name = false, has_possible_name = false, has_step = false;
    bool is_known() const { return has_certain_name || has_step; }
  };
  bool is_optimizer(std::string_view key, const std::vector<std::string_view>& parts, std::size_t root) const;
  std::unordered_map<std::string, group> groups_;                 // by all but the last component
  std::unordered_map<std::string, std::int64_t> unknown_groups_;  // by the prefix of their "state", with its dot
  std::set<std::string> evident_;                                 // prefixes, with their dot, that a module could have
  std::set<std::string> optimizers_;                              // prefixes that have param_groups, with their dot
  bool has_optimizer_ = false;                                    // by structure
  bool has_state_model_ = false;                                  // Composer's root
  bool has_containers_ = false;  // a trainer's checkpoint, not the bare weights of a model
};

/// True when the key alone says that it is optimizer state.
bool is_optimizer_key(std::string_view key);

}  // namespace shardmesh
