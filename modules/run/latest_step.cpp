// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>
module shardmesh.run;

import :latest_step;
import :run_record;

namespace shardmesh {
namespace {

// The problem of a step, as a note that names the step.
error skipped_step(const run_step& step, const error& problem) {
  return fail(problem.code, "the step is skipped: " + to_string(problem)).with_file(step.path.string());
}

// `damaged`: numbers of steps that count as damaged although they pass the check.
result<latest_step> newest_good(const std::filesystem::path& run, step_names names, const step_check_options& check,
                                std::optional<std::int64_t> below, const std::set<std::int64_t>& damaged) {
  SHARDMESH_TRY(std::vector<run_step> steps, find_steps(run, names));
  latest_step made;
  for (; !steps.empty(); steps.pop_back()) {
    if (below && steps.back().step >= *below) continue;
    step_check checked = check_step(steps.back().path, check);
    if (checked.ok() && damaged.contains(steps.back().step))
      checked.problem = detail::found_by_resume(steps.back().path);
    if (checked.ok()) {
      made.step = std::move(steps.back());
      return made;
    }
    if (detail::is_limit_error(*checked.problem)) return *std::move(checked.problem);
    made.skipped.push_back(skipped_step(steps.back(), *checked.problem));
  }
  return made;
}

}  // namespace

result<latest_step> find_latest_step(const std::filesystem::path& run, step_names names,
                                     const step_check_options& check, std::optional<std::int64_t> below) {
  std::set<std::int64_t> damaged;
  // A damaged record must not keep a run from its steps.
  if (const auto record = run_record::read(run); record && !check.deep)
    for (const auto& [step, entry] : record->steps)
      if (entry.is_damaged) damaged.insert(step);
  return newest_good(run, names, check, below, damaged);
}

namespace detail {

result<latest_step> find_step_to_resume(const std::filesystem::path& run, step_names names,
                                        const step_check_options& check, std::optional<std::int64_t> failed) {
  if (failed) {
    SHARDMESH_TRY(const std::vector<run_step> steps, find_steps(run, names));
    if (std::none_of(steps.begin(), steps.end(), [&](const run_step& one) { return one.step == *failed; }))
      failed.reset();
  }
  return newest_good(run, names, check, failed, {});
}

error found_by_resume(const std::filesystem::path& step) {
  return fail(errc::checksum_mismatch, "a resume found the step damaged")
      .with_file(step.string())
      .with_hint("restore its files and resume from it, save the step again, or delete it");
}

}  // namespace detail
}  // namespace shardmesh
