// SPDX-License-Identifier: Apache-2.0
// followed_lists: what a selection makes of the names in an optimizer's lists of parameters, such as the object
// "optim.param_groups.0.params". Not here: reading and writing those objects (parameter_list).
export module shardmesh.checkpoint:followed_lists;

import shardmesh.std;

export namespace shardmesh {

/// Lists of parameters' names among the keys that were selected from, and the new names. It owns what it says.
class followed_lists {
 public:
  /// True of the object at this position among the keys when names in it may have changed.
  bool concerns(std::size_t index) const { return !changes_.empty() && lists_.contains(index); }
  /// What a name in that list becomes: itself, its parameter's new name, or nothing when that is left out.
  std::optional<std::string> renamed(std::size_t index, const std::string& name) const;

  /// A list, and the prefixes with which its names are keys of the model.
  void add_list(std::size_t index, std::vector<std::string> prefixes) { lists_[index] = std::move(prefixes); }
  /// A parameter that is renamed, or (without a new key) left out. `strip_prefix` is the selection's.
  void add_change(std::string key, std::optional<std::string> new_key) {
    changes_.insert_or_assign(std::move(key), std::move(new_key));
  }
  void set_strip_prefix(std::string prefix) { strip_prefix_ = std::move(prefix); }

 private:
  std::unordered_map<std::size_t, std::vector<std::string>> lists_;
  std::unordered_map<std::string, std::optional<std::string>> changes_;
  std::string strip_prefix_;
};

}  // namespace shardmesh
