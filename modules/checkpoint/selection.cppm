// SPDX-License-Identifier: Apache-2.0
// Which keys of a checkpoint take part, under which names and dtypes they come out.
export module shardmesh.checkpoint:selection;

import shardmesh.std;
import shardmesh.core;
import :followed_lists;
import :key_pattern;

export namespace shardmesh {

/// Keys that match get another name.
class rename_rule {
 public:
  rename_rule() = default;
  /// \param replacement  \0 is the key, \1 to \9 are groups of the pattern
  /// \errors errc::invalid_argument with the pattern and RE2's message when the replacement names a group that is none
  static result<rename_rule> make(key_pattern what, std::string replacement);
  /// The new name of a key that matches; nothing of others.
  std::optional<std::string> apply(std::string_view key) const { return what_.rewritten(key, replacement_); }
  const key_pattern& what() const { return what_; }
  /// "RE=REPLACEMENT".
  std::string text() const { return what_.text() + "=" + replacement_; }
  friend bool operator==(const rename_rule&, const rename_rule&) = default;

 private:
  key_pattern what_;
  std::string replacement_;
};

/// "RE=REPLACEMENT", split at the last '='. \errors errc::invalid_argument with the text; those of `make`
result<rename_rule> parse_rename_rule(std::string_view text);

/// Tensors whose key matches become this dtype; without a pattern, floating tensors of 16 bits and more (not FP8 and
/// the like, which were chosen by hand).
struct cast_rule {
  std::optional<key_pattern> what;
  dtype type = dtype::undefined;
  std::string text = {};  // what messages call it: as it was parsed; empty: made of the others
  friend bool operator==(const cast_rule&, const cast_rule&) = default;
};

/// "NAME" or "RE=NAME", split at the last '='. \errors errc::invalid_argument with the text
result<cast_rule> parse_cast_rule(std::string_view text);

/// Which entries of a checkpoint take part, under which names and dtypes: what `select_keys` goes by, and with it
/// `convert`, `reshard` and `read_state_dict`. By default every entry as it is.
struct selection_options {
  std::vector<key_pattern> only = {};    // keep keys that one of these matches; empty: all
  std::vector<key_pattern> skip = {};    // drop keys that one of these matches
  bool no_optimizer = false;             // drop keys whose role among all keys is key_role::optimizer
  std::string strip_prefix = {};         // removed from keys that begin with it, before `rename`
  std::vector<rename_rule> rename = {};  // in order, each on what the one before made
  std::vector<cast_rule> casts = {};     // the first that matches the (original) key wins
  bool allow_unused = false;             // a rule that matches nothing is not an error
  /// `skip`, `strip_prefix` and `rename` of a parameter are also of its optimizer state ("optim.state.w.exp_avg",
  /// "optim.param_groups.w.lr", "optimizer.state.exp_avg.w") and of its name in "optim.param_groups.0.params".
  bool optimizer_follows = false;
};

/// A key that can be selected. `type` is undefined for objects.
struct selectable {
  std::string_view key;
  dtype type = dtype::undefined;
  bool is_tensor = true;
};

/// A key that was selected: which, its new name, its new dtype (its own when there is no cast).
struct selected {
  std::size_t index = 0;
  std::string key;
  dtype type = dtype::undefined;
  friend bool operator==(const selected&, const selected&) = default;
};

/// What `select_keys` chose, and what is wrong with its options.
struct selection_result {
  std::vector<selected> kept;  // in the order given
  std::size_t excluded = 0;    // how many were not kept
  /// Unused rules (naming the option and the rule, and a key that is near), keys that meet after renaming (naming
  /// both), impossible casts, optimizer state that cannot follow: all of them errc::invalid_argument.
  std::vector<error> errors;
  std::vector<std::string> notes;  // for the user, one line each: how many entries followed their parameters
  followed_lists lists;            // with `optimizer_follows`: what becomes of names inside objects
};

/// `only`, `skip` and `no_optimizer` look at the given keys, `rename` at what `strip_prefix` left. A cast without a
/// pattern is of floating tensors of 16 bits and more, one with a pattern of every tensor it matches that `copy`
/// converts. With `optimizer_follows`, state takes part in its parameter's changes, also of a parameter that `only`
/// leaves out, unless a rule of `rename` matches the state itself: then that is its name. Cost: O(keys · rules), linear
/// in the length of each key; O(keys · components) more for state that follows.
selection_result select_keys(std::span<const selectable> keys, const selection_options& options);

}  // namespace shardmesh
