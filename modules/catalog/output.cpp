// SPDX-License-Identifier: Apache-2.0
module;
#include <utility>
#include <vector>
module shardmesh.catalog;

namespace shardmesh {

item_run_options run_options_of(const save_options& options) {
  item_run_options run;
  run.memory_bytes = options.memory_bytes;
  run.threads = options.threads;
  run.call = options.call;
  run.progress = options.progress;
  return run;
}

save_report failed(error problem) {
  save_report report;
  report.problems.push_back(std::move(problem));
  return report;
}

save_report refused(std::vector<error> problems) {
  save_report report;
  report.problems = std::move(problems);
  return report;
}

}  // namespace shardmesh
