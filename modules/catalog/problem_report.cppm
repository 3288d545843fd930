// SPDX-License-Identifier: Apache-2.0
// problem_report: what every report of a call over many entries begins with: what went wrong with them.
export module shardmesh.catalog:problem_report;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// The problems of a save, a load or a check.
struct problem_report {
  std::vector<error> problems;     // of many only the first
  std::int64_t more_problems = 0;  // that are not among them
  bool ok() const { return problems.empty(); }
  /// Success, or the first problem.
  result<void> outcome() const;
};

}  // namespace shardmesh
