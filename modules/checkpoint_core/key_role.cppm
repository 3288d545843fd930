// SPDX-License-Identifier: Apache-2.0
// Decides whether an entry of a training checkpoint belongs to the model, to an optimizer, or to neither, from the
// structure of all keys. Selecting entries for a command is in `selection`.
export module shardmesh.checkpoint_core:key_role;

import shardmesh.std;

export namespace shardmesh {

/// The part of the training state to which an entry belongs. `other` covers random number generators, schedulers,
/// counters, and other trainer state.
enum class key_role : std::uint8_t { model, optimizer, other };

/// The roles of a checkpoint's keys. A single key is often ambiguous: "state.model.w" is a weight in a checkpoint of
/// Composer, but the state of the parameter "model.w" in a checkpoint of an optimizer alone. Add all keys first, then
/// ask for roles.
///
/// These keys belong to an optimizer:
/// - Keys below "optimizer_states", "optimizer_state_dict", and similar names, as the first component or after a
///   trainer's prefix ("state.", "trainer.", "chained_0.", "mimo.NAME.").
/// - Keys below "optim", "optimizer", "optimizer_0", or "opt" in that position. A module may have such a name, so some
///   key below it must contain "state", "param_groups", "exp_avg" or a similar name, or a "/" (Megatron).
/// - Keys in "param_groups" with an optimizer's fields ("lr", "params"), and keys in a "state" beside such groups.
/// - Keys of the form `state.<parameter>.<name>`, when the checkpoint has no other optimizer state. Every parameter of
///   that "state" must have "exp_avg", "momentum_buffer", or a similar name, or a "step". A "state" with other contents
///   is a module that uses such names.
///
/// A key that fits no rule counts as the model's: a second run can drop a surplus entry, but cannot restore a dropped
/// weight.
/// Sources: torch.distributed.checkpoint.state_dict, torch.optim, composer/core/state.py, megatron/core/optimizer,
/// lightning, deepspeed, torchtitan, torchtune.
class key_roles {
 public:
  /// Adds a key. Cost: O(length).
  void add(std::string_view key);
  /// Returns the role of a key, whether it was added or not. Cost: O(length · components).
  key_role role_of(std::string_view key) const;

 private:
  // The names seen among the entries `<state>.<parameter>.*` of one parameter.
  struct group {
    bool has_certain_name = false, has_possible_name = false, has_step = false;
    bool is_known() const { return has_certain_name || has_step; }
  };
  bool is_optimizer(std::string_view key, const std::vector<std::string_view>& parts, std::size_t root) const;
  std::unordered_map<std::string, group> groups_;                 // by the key without its last component
  std::unordered_map<std::string, std::int64_t> unknown_groups_;  // number of unknown groups, by prefix up to "state."
  std::set<std::string> evident_;     // prefixes that a module could have, found to be an optimizer's
  std::set<std::string> optimizers_;  // prefixes with param_groups, dot included
  bool has_optimizer_ = false;        // known from structure, not from names alone
  bool has_state_model_ = false;      // Composer's root
  bool has_containers_ = false;       // a trainer's checkpoint, not the bare weights of a model
};

/// Returns whether the key alone identifies optimizer state.
bool is_optimizer_key(std::string_view key);

}  // namespace shardmesh
