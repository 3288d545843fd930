// SPDX-License-Identifier: Apache-2.0
// Not exported: renames optimizer state, or leaves it out, together with its parameter, for `select_keys`. Finding the
// parameter of an entry is in state_names.
module shardmesh.checkpoint:optimizer_state_renames;

import shardmesh.std;
import shardmesh.core;
import :param_group_renames;
import :selection;
import :state_names;

namespace shardmesh {

// The effect of the rules on one key, taken alone.
struct key_change {
  std::string key = {};
  std::vector<std::size_t> renames = {};  // positions of the rules that matched
  bool is_stripped = false;               // the key begins with strip_prefix
  bool is_skipped = false;
};
// Applies strip_prefix and the rename rules. Leaves `is_skipped` unset.
key_change change_of(std::string_view key, const selection_options& options);

// Returns the new name of a parameter in an optimizer that knows the parameter by its key without the first `prefix`
// bytes. Returns nothing when the new key is ambiguous: the prefix is neither kept nor removed by strip_prefix, and the
// rest has changed as well.
std::optional<std::string> new_parameter_name(std::string_view key, std::size_t prefix, std::string_view new_key,
                                              std::string_view strip_prefix);

class optimizer_state_renames {
 public:
  optimizer_state_renames(std::span<const selectable> keys, const selection_options& options);

  // Returns the change that the parameter of the entry at `index` causes in the entry: `is_skipped`, or another key. A
  // new key comes with the parameter's `renames`; `is_stripped` is set if either key was stripped. Returns nothing for
  // an entry that is not optimizer state, whose parameter does not change, or that the rules rename directly (`own`).
  // \errors errc::invalid_argument where the state cannot follow; names the key and both candidate parameters, or the
  //         parameter and its new key
  result<std::optional<key_change>> change_by_parameter(std::size_t index, const key_change& own);
  // Returns an entry of optimizer state that stays unchanged although rules change other tensors, because no entry of
  // optimizer state names a parameter (keys have numbers instead). Returns nothing when there is no such entry.
  std::optional<std::size_t> left_behind();
  // Returns the parameter lists among `keys`, and the parameters that change.
  param_group_renames lists();

 private:
  const key_change& change(std::size_t parameter);
  result<std::optional<key_change>> follow(std::size_t index, const state_name& name, const key_change& own);

  std::span<const selectable> keys_;
  const selection_options& options_;
  state_names names_;
  std::unordered_map<std::size_t, key_change> changes_;
};

}  // namespace shardmesh
