// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.run;

import shardmesh.checkpoint;
import shardmesh.checkpoint_core;
import shardmesh.dcp;
import shardmesh.storage;
import :run_lock;
import :step_copy;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

// Checks the written copy: it must be whole, independent, and equal to the step.
result<void> check_copy(checkpoint_reader& step, const fs::path& copy, int threads) {
  SHARDMESH_TRY(const auto made, open_checkpoint(copy));
  if (!made->problems().empty()) return fail_all(made->problems());
  for (const std::string& file : made->contents().files)
    if (parse_sibling_file(file))
      return fail(errc::bad_format, "the copy of the step refers to another step").with_file(file);
  SHARDMESH_TRY(verify_report checked, verify(*made, {.threads = threads}));
  if (!checked.ok()) return fail_all(std::move(checked.problems), checked.more_problems);
  SHARDMESH_TRY(diff_report compared, diff(step, *made, {.layout = true, .threads = threads}));
  if (!compared.problems.empty()) return fail_all(std::move(compared.problems));
  if (compared.differences.empty()) return {};
  return fail(errc::checksum_mismatch, "the copy of the step differs from it: " + compared.differences.front().text)
      .with_key(compared.differences.front().key)
      .with_file(step.path().string())
      .with_hint("verify the step, and flatten it again");
}

// The attributes and texts of the description.
dcp::extras extras_of_step(const checkpoint_reader& step) {
  dcp::extras made = dcp::extras_of(step);
  made.texts.clear();
  for (const file_text& text : step.contents().texts) made.texts.emplace_back(text.key, text.value);
  return made;
}

// Writes, checks, and commits the new folder.
result<flatten_report> rewrite(checkpoint_reader& reader, const recorded_sums& record, int threads) {
  conversion work = select_for_output(reader, {});
  for (error& refused : work.unsupported) work.problems.push_back(std::move(refused));
  if (!work.problems.empty()) return fail_all(std::move(work.problems));
  SHARDMESH_TRY(staged_output output, staged_output::directory(reader.path(), {.overwrite = true}));
  step_copy copy(reader, record.ranges(), output);
  SHARDMESH_TRY(copy.run());
  SHARDMESH_TRY(const std::vector<dcp::item_place> places, copy.places_of(work));
  SHARDMESH_TRY(dcp::finish_folder(output, work.tensors, work.objects, places, extras_of_step(reader), copy.ranges()));
  SHARDMESH_TRY(output.prepare());
  SHARDMESH_TRY(check_copy(reader, output.folder(), threads));
  SHARDMESH_TRY(output.commit());
  flatten_report made;
  made.copied_bytes = copy.copied_bytes();
  made.notes = output.notes();
  return made;
}

}  // namespace

result<flatten_report> flatten_step(const fs::path& run, std::int64_t step, step_names names, int threads) {
  std::error_code code;
  if (step < 0 || !fs::is_directory(run / folder_name(step, names), code))
    return fail(errc::invalid_argument, fmt::format("the run has no step {} to flatten", step)).with_file(run.string());
  const fs::path path = run / folder_name(step, names);
  // The lock of this run does not keep a writer away from the folder to which a link leads.
  if (fs::is_symlink(fs::symlink_status(path, code)))
    return fail(errc::unsupported, "the step is a symbolic link, and its folder belongs to another run")
        .with_file(path.string())
        .with_hint("flatten the step in the run to which the link leads");
  SHARDMESH_TRY(const run_lock lock, run_lock::take(run));
  step_check checked = check_step(path);
  if (checked.problem) return *std::move(checked.problem);
  if (checked.references.empty()) return flatten_report();
  SHARDMESH_TRY(const auto reader, open_checkpoint(path));
  if (!dcp::extras_of(*reader).common_keys.empty())
    return fail(errc::unsupported, "a step with Megatron's common.pt cannot be flattened").with_file(path.string());
  SHARDMESH_TRY(const std::shared_ptr<const recorded_sums> record, recorded_sums::open(*reader));
  if (!record)
    return fail(errc::bad_format, "the step refers to others, but has no record of checksums")
        .with_file((path / checksum_file_name).string())
        .with_hint("restore the file, or save the step again");
  SHARDMESH_TRY(flatten_report made, rewrite(*reader, *record, threads));
  made.references = std::move(checked.references);
  return made;
}

}  // namespace shardmesh
