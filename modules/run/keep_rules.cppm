// SPDX-License-Identifier: Apache-2.0
// keep_rules: which steps of a run the user wants to keep, as values. `prune` adds the steps that are kept for other
// reasons, and deletes the rest.
export module shardmesh.run:keep_rules;

import shardmesh.std;
import shardmesh.core;
import :run_step;

export namespace shardmesh {

/// The rules that keep steps. A step that one of them keeps is kept. Without a rule, every step is kept.
struct keep_rules {
  std::int64_t last = 0;   // the newest k good steps; 0: no such rule
  std::int64_t every = 0;  // each step whose number is a multiple of n; 0: no such rule
  std::int64_t best = 0;   // the k steps with the best metric, of those that have one; 0: no such rule
  bool highest_is_best = false;
  std::optional<std::chrono::system_clock::time_point> since{};  // each step that was saved at this time or later

  /// Returns whether there is a rule. Pinned steps are kept anyway.
  bool any() const { return last != 0 || every != 0 || best != 0 || since.has_value(); }
};

/// Checks the numbers of the rules.
/// \errors errc::invalid_argument for a negative one, naming the rule
result<void> check_rules(const keep_rules& rules);

/// Returns the reasons for which rules keep each step: "last 3", "every 1000", "best 2", "since", "pinned", or "no
/// rule". A step without a reason is kept by no rule. Of two steps with equal metrics, the newer one is better.
/// \param steps  good steps, ascending
/// \returns one list for each step
/// Cost: O(n log n). No files are read.
std::vector<std::vector<std::string>> reasons_to_keep(std::span<const run_step> steps, const keep_rules& rules);

}  // namespace shardmesh
