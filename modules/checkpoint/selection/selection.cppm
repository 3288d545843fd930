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

/// Tensors become this dtype: those of its kind (floating, integer, complex) whose key matches. Without a pattern, of
/// floating tensors those of 16 bits and more, because FP8 and the like were chosen by hand. Tensors of another kind
/// are cast only by a rule that names their dtype in `from`.
struct cast_rule {
  std::optional<key_pattern> what;
  dtype type = dtype::undefined;
  std::string text = {};           // what messages call it: as it was parsed; empty: made of the others
  std::optional<dtype> from = {};  // casts tensors of exactly this dtype, whatever its kind
  friend bool operator==(const cast_rule&, const cast_rule&) = default;
};

/// "NAME", "RE=NAME", "FROM:NAME" or "RE=FROM:NAME", split at the last '='.
/// \errors errc::invalid_argument with the text, and the dtype that was likely meant
result<cast_rule> parse_cast_rule(std::string_view text);

/// The rule as it was parsed, or as it would be written.
std::string to_string(const cast_rule& rule);

/// The dtype that a name which is none was likely meant to be: float32 of "fp32" and of "flaot32".
std::optional<dtype> nearest_dtype(std::string_view text);

/// Which entries of a checkpoint take part, under which names and dtypes: what `select_keys` goes by, and with it
/// `convert`, `reshard` and `read_state_dict`. By default every entry as it is.
struct selection_options {
  std::vector<key_pattern> only = {};    // keep keys that one of these matches; empty: all
  std::vector<key_pattern> skip = {};    // drop keys that one of these matches
  bool no_optimizer = false;             // drop keys whose role among all keys is key_role::optimizer
  std::string strip_prefix = {};         // removed from keys that begin with it, before `rename`
  std::vector<rename_rule> rename = {};  // in order, each on what the one before made
  std::vector<cast_rule> casts = {};     // the first that casts the tensor of the (original) key wins
  bool allow_unused = false;             // a rule that matches nothing is not an error
  /// `skip`, `strip_prefix` and `rename` of a parameter are also of its optimizer state ("optim.state.w.exp_avg",
  /// "optim.param_groups.w.lr", "optimizer.state.exp_avg.w") and of its name in "optim.param_groups.0.params".
  bool optimizer_follows = false;
  /// Casts that lose values of integers, or by which numbers change their kind. Without it they are errc::narrowing;
  /// casts to a smaller floating type are always made, and a note counts them.
  bool allow_narrowing = false;
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
  /// both), impossible casts, optimizer state that cannot follow: all of them errc::invalid_argument. Casts that lose
  /// values and were not allowed: errc::narrowing, the first twenty with their keys, then their number.
  std::vector<error> errors;
  /// For the user, one line each: entries that followed their parameters, casts that lose values, and tensors that a
  /// rule of `casts` matches and leaves as they are.
  std::vector<std::string> notes;
  followed_lists lists;  // with `optimizer_follows`: what becomes of names inside objects
};

/// `only`, `skip` and `no_optimizer` look at the given keys, `rename` at what `strip_prefix` left. `cast_rule` says
/// which tensors a cast is of. With `optimizer_follows`, state takes part in its parameter's changes, also of a
/// parameter that `only` leaves out, unless a rule of `rename` matches the state itself: then that is its name. Cost:
/// O(keys · rules), linear in the length of each key; O(keys · components) more for state that follows.
selection_result select_keys(std::span<const selectable> keys, const selection_options& options);

}  // namespace shardmesh
