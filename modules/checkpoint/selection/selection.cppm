// SPDX-License-Identifier: Apache-2.0
// Selects the keys of a checkpoint that take part, with their new names and dtypes.
export module shardmesh.checkpoint:selection;

import shardmesh.std;
import shardmesh.core;
import :param_group_renames;
import :key_pattern;

export namespace shardmesh {

/// A rule that renames the keys that match.
class rename_rule {
 public:
  rename_rule() = default;
  /// Makes a rule from a pattern and a replacement.
  /// \param replacement  \0 is the key, \1 to \9 are groups of the pattern
  /// \errors errc::invalid_argument with the pattern and RE2's message if the replacement names a group that the
  ///         pattern lacks
  static result<rename_rule> make(key_pattern what, std::string replacement);
  /// Returns the new name of a key that matches; nothing for other keys.
  std::optional<std::string> apply(std::string_view key) const { return what_.rewritten(key, replacement_); }
  const key_pattern& what() const { return what_; }
  /// "RE=REPLACEMENT".
  std::string text() const { return what_.text() + "=" + replacement_; }
  friend bool operator==(const rename_rule&, const rename_rule&) = default;

 private:
  key_pattern what_;
  std::string replacement_;
};

/// Parses "RE=REPLACEMENT", split at the last '='.
/// \errors errc::invalid_argument with the text; those of `make`
result<rename_rule> parse_rename_rule(std::string_view text);

/// A rule that casts tensors to `type`. It applies to tensors of the same kind (floating, integer, complex) whose key
/// matches. Without a pattern, a rule for a floating type does not cast tensors of less than 16 bits, because FP8 and
/// similar types were chosen deliberately. A tensor of another kind is cast only by a rule that names its dtype in
/// `from`.
struct cast_rule {
  std::optional<key_pattern> what;
  dtype type = dtype::undefined;
  std::string text = {};           // its name in messages: the parsed text; empty: made from the other members
  std::optional<dtype> from = {};  // casts tensors of exactly this dtype, whatever its kind
  friend bool operator==(const cast_rule&, const cast_rule&) = default;
};

/// Parses "NAME", "RE=NAME", "FROM:NAME", or "RE=FROM:NAME", split at the last '='.
/// \errors errc::invalid_argument with the text, and the dtype that was probably meant
result<cast_rule> parse_cast_rule(std::string_view text);

/// Returns the rule's text as it was parsed, or a text that `parse_cast_rule` would read as this rule.
std::string to_string(const cast_rule& rule);

/// Returns the dtype that an unknown name probably means: float32 for "fp32" and for "flaot32".
std::optional<dtype> nearest_dtype(std::string_view text);

/// The entries of a checkpoint that take part, with their names and dtypes. Options of `select_keys`, and thus of
/// `convert`, `reshard`, and `read_state_dict`. By default, every entry is kept unchanged.
struct selection_options {
  std::vector<key_pattern> only = {};    // keep keys that one of these matches; empty: all
  std::vector<key_pattern> skip = {};    // drop keys that one of these matches
  bool no_optimizer = false;             // drop keys whose role among all keys is key_role::optimizer
  std::string strip_prefix = {};         // removed from keys that begin with it, before `rename`
  std::vector<rename_rule> rename = {};  // in order, each applied to the result of the one before
  std::vector<cast_rule> cast = {};      // the first rule that casts a tensor wins; patterns match original keys
  bool allow_unused = false;             // accept rules that match nothing
  /// Applies a parameter's `skip`, `strip_prefix`, and `rename` also to its optimizer state ("optim.state.w.exp_avg",
  /// "optim.param_groups.w.lr", "optimizer.state.exp_avg.w") and to its name in "optim.param_groups.0.params".
  bool optimizer_follows = false;
  /// Allows casts that lose values of integers, or that change the kind of a number. Without it, they are
  /// errc::narrowing. Casts to a smaller floating type are always made, and a note counts them.
  bool allow_narrowing = false;
};

/// A key that can be selected. `type` is undefined for objects.
struct selectable {
  std::string_view key;
  dtype type = dtype::undefined;
  bool is_tensor = true;
};

/// A selected key: its position, its new name, and its new dtype (its own if no rule casts it).
struct selected {
  std::size_t index = 0;
  std::string key;
  dtype type = dtype::undefined;
  friend bool operator==(const selected&, const selected&) = default;
};

/// The keys that `select_keys` chose, and the problems of its options.
struct selection_result {
  std::vector<selected> kept;  // in the order given
  std::size_t excluded = 0;    // number of keys that were not kept
  /// errc::invalid_argument: unused rules (with the option, the rule, and the nearest key), keys that coincide after
  /// renaming (names both), impossible casts, and optimizer state that cannot follow. errc::narrowing: casts that lose
  /// values and are not allowed, the first twenty with their keys, then the number of the others.
  std::vector<error> errors;
  /// For the user, one line each: entries that followed their parameters, casts that lose values, and tensors that a
  /// rule of `cast` matches but does not cast.
  std::vector<std::string> notes;
  param_group_renames lists;  // with `optimizer_follows`: new names inside objects
};

/// Selects keys, and gives them new names and dtypes. `only`, `skip`, and `no_optimizer` match the given keys; `rename`
/// matches the keys after `strip_prefix`. See `cast_rule` for the tensors that a cast applies to. With
/// `optimizer_follows`, optimizer state takes part in its parameter's changes, even if `only` leaves the parameter out.
/// A rule of `rename` that matches the state itself takes precedence.
/// Cost: O(keys · rules), linear in the length of each key; O(keys · components) more for state that follows.
selection_result select_keys(std::span<const selectable> keys, const selection_options& options);

}  // namespace shardmesh
