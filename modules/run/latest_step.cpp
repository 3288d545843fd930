// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>
module shardmesh.run;

namespace shardmesh {
namespace {

// The problem of a step, as a note that names the step.
error skipped_step(const run_step& step, const error& problem) {
  return fail(problem.code, "the step is skipped: " + to_string(problem)).with_file(step.path.string());
}

}  // namespace

result<latest_step> find_latest_step(const std::filesystem::path& run, step_names names,
                                     const step_check_options& check, std::optional<std::int64_t> below) {
  SHARDMESH_TRY(std::vector<run_step> steps, find_steps(run, names));
  latest_step made;
  for (; !steps.empty(); steps.pop_back()) {
    if (below && steps.back().step >= *below) continue;
    step_check checked = check_step(steps.back().path, check);
    if (checked.ok()) {
      made.step = std::move(steps.back());
      return made;
    }
    if (detail::is_limit_error(*checked.problem)) return *std::move(checked.problem);
    made.skipped.push_back(skipped_step(steps.back(), *checked.problem));
  }
  return made;
}

}  // namespace shardmesh
