// SPDX-License-Identifier: Apache-2.0
// Which keys of a checkpoint a command works on, under which names and dtypes they come out.
export module shardmesh.checkpoint:selection;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// The options of the command line, as typed. Regular expressions are RE2's, match a whole key (a byte string; keys
/// that are not UTF-8 are matched byte by byte) and are split from what follows at the last "=".
struct selection_options {
  std::vector<std::string> only = {};    // RE: keep keys that one of these matches
  std::vector<std::string> skip = {};    // RE: drop keys that one of these matches
  bool no_optimizer = false;             // drop keys whose role among all keys is key_role::optimizer
  std::string strip_prefix = {};         // removed from keys that begin with it, before `rename`
  std::vector<std::string> rename = {};  // RE=REPLACEMENT, in order, each on what the one before made; \1 is a group
  std::vector<std::string> dtype = {};   // NAME, or RE=NAME; the first that matches the (original) key wins
  bool allow_unused = false;             // a rule that matches nothing is not an error
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

struct selection_result {
  std::vector<selected> kept;  // in the order given
  std::size_t excluded = 0;
  std::vector<error> errors;  // unused rules, keys that meet after renaming (naming both), impossible casts
};

/// Compiled options.
class selection {
 public:
  /// Keeps everything as it is.
  selection();
  selection(selection&&) noexcept;
  selection& operator=(selection&&) noexcept;
  ~selection();

  /// errc::invalid_argument, with RE2's message, for a bad expression, replacement or dtype name.
  static result<selection> compile(const selection_options& options);

  /// True when every key stays, under its own name and dtype.
  bool keeps_everything() const;

  /// `only`, `skip` and `no_optimizer` look at the given keys, `rename` at what `strip_prefix` left. NAME casts
  /// floating tensors of 16 bits and more; RE=NAME every tensor it matches that `copy` converts. Cost: O(keys · rules),
  /// linear in the length of each key.
  selection_result apply(std::span<const selectable> keys) const;

 private:
  struct rules;
  std::unique_ptr<rules> rules_;
};

}  // namespace shardmesh
