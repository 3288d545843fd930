// SPDX-License-Identifier: Apache-2.0
// prune: deletes the steps of a run that nothing keeps. The decision is a value, which can be shown before anything is
// deleted. The user's rules are in `keep_rules`.
export module shardmesh.run:prune;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import :keep_rules;
import :run_step;
import :step_names;

export namespace shardmesh {

/// The steps that a prune keeps, and how their folders are named.
struct prune_options {
  step_names names = step_names::step;
  keep_rules keep{};
  /// Names of step folders that are kept in addition, such as those to which a save in progress refers.
  std::vector<std::string> in_use{};
  /// Numbers of steps that count as damaged although they pass the check. Steps with `run_step::is_damaged` do so, too.
  std::set<std::int64_t> damaged{};
};

/// A step that stays, and every reason: a rule, "newest good step", "step-100 refers to it", "best leads to it", "in
/// use", "latest_checkpointed_iteration.txt names it", or a problem.
struct kept_step {
  run_step step;
  std::vector<std::string> reasons;
  std::optional<error> problem{};  // the step fails the check; it is not deleted, because it may be repaired
};

/// A step to delete.
struct deleted_step {
  run_step step;
  std::int64_t size_bytes = 0;
  std::vector<std::string> references{};  // the names of the folders to which it refers
};

/// The steps that a prune would keep, and those that it would delete.
struct prune_plan {
  std::filesystem::path run;
  step_names names = step_names::step;
  std::vector<kept_step> kept;        // ascending
  std::vector<deleted_step> deleted;  // ascending
  std::vector<leftover> leftovers;    // of killed saves and prunes in the folder; only those without an owner
  std::vector<std::string> notes;     // for the user: why nothing is deleted

  /// Returns the size of the deleted steps and of the leftovers; saturates.
  std::int64_t deleted_bytes() const;
};

/// The counts of deleted steps and leftovers. A step that could not be deleted is a problem, and the prune continues
/// with the others.
struct prune_report {
  std::int64_t steps = 0, leftovers = 0;  // deleted
  std::int64_t bytes = 0;
  std::vector<error> problems;
};

/// Decides which steps to delete. Keeps each good step that a rule keeps, the newest good step, each step that fails
/// the check, each step that is in use, each step to which a kept step or another folder of the run refers, each to
/// which a symbolic link in the run leads, and the one that Megatron's tracker file names. If a description cannot be
/// read, nothing is deleted, because it may refer to any step; a note names the folder.
/// \errors errc::invalid_argument (a negative rule); errc::no_memory; those of `list_steps`
/// Cost: the cheap check of every step.
result<prune_plan> plan_prune(const std::filesystem::path& run, const prune_options& options = {});

/// Carries out a plan: deletes first the leftovers, then the steps, each before those to which it refers. A step
/// disappears in one rename. After a kill or a power cut, each of these steps is whole or gone, and no step refers to a
/// deleted one. The next prune or `shardmesh clean` removes the rest. A step that was pinned since is kept. A step
/// folder with entries that belong to no checkpoint is kept, and is a problem. So are the steps to which such a step
/// refers.
/// \errors errc::destination_exists when a `checkpoint_run` has the folder open; errc::io
result<prune_report> prune_run(const prune_plan& plan);

}  // namespace shardmesh

namespace shardmesh {

// As `prune_run`, for the run that has the folder open.
prune_report carry_out(const prune_plan& plan);

}  // namespace shardmesh
