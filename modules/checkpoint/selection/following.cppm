// SPDX-License-Identifier: Apache-2.0
// Not exported: optimizer state that is renamed and left out as its parameter is, inside `select_keys`. Not here: which
// parameter an entry belongs to (state_names).
module shardmesh.checkpoint:following;

import shardmesh.std;
import shardmesh.core;
import :followed_lists;
import :selection;
import :state_names;

namespace shardmesh {

// What the rules make of a key that is looked at alone.
struct key_change {
  std::string key = {};
  std::vector<std::size_t> renames = {};  // the rules that matched, by position
  bool is_stripped = false;               // it begins with strip_prefix
  bool is_skipped = false;
};
// All but `is_skipped`.
key_change change_of(std::string_view key, const selection_options& options);

// A parameter's new name in an optimizer that knows it without the first `prefix` bytes of its key. Nothing where the
// new key does not say: the prefix is neither kept nor what strip_prefix removes, and the rest has changed, too.
std::optional<std::string> new_parameter_name(std::string_view key, std::size_t prefix, std::string_view new_key,
                                              std::string_view strip_prefix);

class following {
 public:
  following(std::span<const selectable> keys, const selection_options& options);

  // What becomes of the entry with this key because of its parameter: `is_skipped`, or another key (then `renames` and
  // `is_stripped` are also the parameter's). Nothing when it is not an optimizer's, when no rule changes its parameter,
  // and when a rule matches it itself (`own`). \errors errc::invalid_argument where the state cannot follow: key and
  // both parameters, or the parameter and its new key
  result<std::optional<key_change>> change_by_parameter(std::size_t index, const key_change& own);
  // An entry of optimizer state, none of which names a parameter (numbers stand there), where rules change what is no
  // state.
  std::optional<std::size_t> left_behind();
  // For lists of parameters: those that `keys` may hold, and what changed.
  followed_lists lists();

 private:
  const key_change& change(std::size_t parameter);
  result<std::optional<key_change>> follow(std::size_t index, const state_name& name, const key_change& own);

  std::span<const selectable> keys_;
  const selection_options& options_;
  state_names names_;
  std::unordered_map<std::size_t, key_change> changes_;
};

}  // namespace shardmesh
