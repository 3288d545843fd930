// SPDX-License-Identifier: Apache-2.0
// Not exported: compares the values that ranks saved under one key. Items are compared in `item_comparison`.
module shardmesh.dcp:rank_comparison;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :held_entries;
import :metadata;

namespace shardmesh::dcp {

inline constexpr std::string_view different_values = "saved different values under this key";

class rank_comparison {
 public:
  // `rules` must outlive the result.
  explicit rank_comparison(const merge_rules& rules) : rules_(rules) {}

  // Returns the ranks' disagreement; nothing when they all have one value.
  std::optional<error> conflict_in(const holders& all);
  // Makes the error of a disagreement of these ranks.
  static error conflict(const holders& all, std::string_view what);
  // Returns whether two items are equal. Items that cannot be compared are a problem of their own, not a difference.
  bool hold_the_same(const held_entry& a, const stored_range& at, const held_entry& b, const stored_range& other);

  // Returns a problem for each item that cannot be compared.
  const std::vector<error>& problems() const { return problems_; }

 private:
  const merge_rules& rules_;
  std::vector<error> problems_;
};

}  // namespace shardmesh::dcp
