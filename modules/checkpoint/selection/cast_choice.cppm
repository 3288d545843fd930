// SPDX-License-Identifier: Apache-2.0
// Not exported: chooses the rule that casts a tensor, and reports casts in the result of `select_keys`.
module shardmesh.checkpoint:cast_choice;

import shardmesh.std;
import shardmesh.core;
import :selection;

namespace shardmesh {

// Chooses the new dtype of every selected tensor. Counts the tensors that the rules cast, and those that they leave.
class cast_choice {
 public:
  explicit cast_choice(const selection_options& options);

  // Returns the tensor's new dtype; its own if no rule casts it.
  dtype type_of(const selectable& tensor);
  // Returns true when the rule matches a key seen so far. A rule with neither a pattern nor FROM always counts as
  // matching.
  bool matches_any(std::size_t rule) const;
  // Adds the errors and notes about all tensors seen so far.
  void report(selection_result& into) const;

 private:
  struct key_count {
    std::string first;
    std::int64_t count = 0;
    void add(std::string_view key);
  };
  struct rule_use {
    std::map<dtype, std::int64_t> left;  // tensors that match, but are of another kind and are cast by no other rule
    std::int64_t casts = 0;              // tensors for which the rule decides, whether or not they need a cast
    bool is_matched = false;
    std::optional<std::size_t> earlier;  // the rule that decides for `taken`, the first tensor that this one would cast
    std::string taken;
  };
  struct cast {
    dtype from, to;
    auto operator<=>(const cast&) const = default;
  };

  void note_cast(const selectable& tensor, dtype to);
  void report_left(selection_result& into) const;
  // Adds an error for each rule with a pattern or FROM that casts nothing because earlier rules decide.
  void report_shadowed(selection_result& into) const;

  const selection_options& options_;
  std::vector<rule_use> uses_;         // by rule
  std::map<cast, key_count> lossy_;    // lossy casts that are made
  std::map<cast, key_count> refused_;  // lossy casts that are not allowed
  std::vector<error> errors_;
};

}  // namespace shardmesh
