// SPDX-License-Identifier: Apache-2.0
// param_group_renames: the new names that a selection gives to entries of an optimizer's parameter lists, such as the
// object "optim.param_groups.0.params". Reading and writing those objects is in parameter_list.
export module shardmesh.checkpoint:param_group_renames;

import shardmesh.std;

export namespace shardmesh {

/// The parameter lists among the keys of a selection, and the new names of parameters. Owns its strings.
class param_group_renames {
 public:
  /// Returns true when the object at this position among the keys is a list in which names may change.
  bool concerns(std::size_t index) const { return !changes_.empty() && lists_.contains(index); }
  /// Returns the new name of `name` in that list: `name` itself, its parameter's new name, or nothing if the parameter
  /// is left out.
  std::optional<std::string> renamed(std::size_t index, const std::string& name) const;

  /// Adds a list, and the prefixes that turn its names into keys of the model.
  void add_list(std::size_t index, std::vector<std::string> prefixes) { lists_[index] = std::move(prefixes); }
  /// Adds a parameter that is renamed, or left out if it has no new key.
  void add_change(std::string key, std::optional<std::string> new_key) {
    changes_.insert_or_assign(std::move(key), std::move(new_key));
  }
  /// Sets the selection's `strip_prefix`.
  void set_strip_prefix(std::string prefix) { strip_prefix_ = std::move(prefix); }

 private:
  std::unordered_map<std::size_t, std::vector<std::string>> lists_;
  std::unordered_map<std::string, std::optional<std::string>> changes_;
  std::string strip_prefix_;
};

}  // namespace shardmesh
