// SPDX-License-Identifier: Apache-2.0
// The problems of a call over many entries; every such report starts with them.
export module shardmesh.checkpoint_core:problem_report;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// The problems of a save, a load, or a check.
struct problem_report {
  std::vector<error> problems;     // only the first ones when there are many
  std::int64_t more_problems = 0;  // number of problems beyond those listed
  bool ok() const { return problems.empty(); }
  /// Returns success, or the first problem.
  result<void> outcome() const;
};

}  // namespace shardmesh
