// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <sys/stat.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.run;

import shardmesh.dcp;
import shardmesh.storage;
import :run_record;
import :save_preparation;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

bool is_there(const fs::path& path) {
  std::error_code code;
  return fs::exists(fs::symlink_status(path, code));
}

// A step that is replaced loses the bytes to which others refer.
result<void> check_unreferenced(const step_to_save& save) {
  const std::string folder = folder_name(save.step, save.options.names);
  const auto refuse = [&](const std::string& referring) {
    return fail(errc::invalid_argument, "the step cannot be replaced, because another one refers to it")
        .with_file((save.run / folder).string())
        .with_values("", referring)
        .with_hint("remove the step that refers to it first, or save under another number");
  };
  if (save.needed.contains(folder)) return refuse("a save in progress");
  SHARDMESH_TRY(const std::vector<run_step> steps, find_steps(save.run, save.options.names));
  for (const run_step& other : steps) {
    if (other.step == save.step) continue;
    const step_check checked = check_step(other.path);
    if (std::find(checked.references.begin(), checked.references.end(), folder) != checked.references.end())
      return refuse(other.path.filename().string());
  }
  return {};
}

// The newest good step that the new one can refer to; empty: none.
result<fs::path> choose_previous(const step_to_save& save, std::vector<std::string>& notes) {
  SHARDMESH_TRY(latest_step latest, find_latest_step(save.run, save.options.names));
  if (latest.step && latest.step->step == save.step) {
    SHARDMESH_TRY(latest, find_latest_step(save.run, save.options.names, {}, save.step));
  }
  if (!latest.step) return fs::path();
  // A good step may lack a record of checksums, or have a damaged one. The training must not end for that.
  const fs::path destination = save.run / folder_name(save.step, save.options.names);
  const auto usable = dcp::previous_checkpoint::open(latest.step->path, destination);
  if (usable) return latest.step->path;
  notes.push_back(fmt::format("step {} is saved whole: {}", save.step, to_string(usable.error())));
  return fs::path();
}

std::optional<std::pair<std::uint64_t, std::uint64_t>> identity_of(const fs::path& folder) {
  struct ::stat status{};
  if (::lstat(folder.c_str(), &status) != 0) return std::nullopt;
  return std::pair<std::uint64_t, std::uint64_t>(status.st_dev, status.st_ino);
}

result<earlier_record> record_save(const step_to_save& save, std::vector<std::string>& notes) {
  SHARDMESH_TRY(run_record record, run_record::read(save.run));
  const auto is_gone = [&](const auto& entry) {
    return std::find(save.in_flight.begin(), save.in_flight.end(), entry.first) == save.in_flight.end() &&
           !is_there(save.run / folder_name(entry.first, save.options.names));
  };
  std::erase_if(record.steps, is_gone);
  earlier_record earlier;
  earlier.folder = identity_of(save.run / folder_name(save.step, save.options.names));
  if (const auto found = record.steps.find(save.step); found != record.steps.end()) earlier.entry = found->second;
  run_record::entry made;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  made.saved = std::max(std::chrono::seconds(0), std::chrono::duration_cast<std::chrono::seconds>(now));
  if (save.saving.metric && std::isfinite(*save.saving.metric))
    made.metric = save.saving.metric;
  else if (save.saving.metric)
    notes.push_back(fmt::format("step {} has no metric, because {} is not finite", save.step, *save.saving.metric));
  record.steps.insert_or_assign(save.step, made);
  SHARDMESH_TRY(record.write(save.run, save.saving.saving.durable));
  return earlier;
}

}  // namespace

result<save_preparation> prepare_save(const step_to_save& save) {
  const rank_save_options& how = save.saving.saving;
  save_preparation made;
  made.overwrite = how.overwrite;
  made.previous = how.previous;
  const fs::path path = save.run / folder_name(save.step, save.options.names);
  if (how.format != target_format::dcp && how.format != target_format::hf)
    return fail(errc::unsupported, "a step is a folder, and this format is not written as a folder by several ranks")
        .with_file(path.string())
        .with_values("dcp or hf", std::string(target_of(how.format).name))
        .with_hint("save as dcp or hf, and convert the step afterwards");
  if (is_there(path)) {
    if (!made.overwrite)
      if (const step_check checked = check_step(path); !checked.ok()) {
        made.overwrite = true;
        made.notes.push_back(
            fmt::format("{}: the damaged step is replaced: {}", path.string(), to_string(*checked.problem)));
      }
    if (made.overwrite) SHARDMESH_TRY(check_unreferenced(save));
  }
  if (save.options.incremental && how.format == target_format::dcp && made.previous.empty()) {
    SHARDMESH_TRY(made.previous, choose_previous(save, made.notes));
  }
  // A damaged record must not end the training.
  if (auto recorded = record_save(save, made.notes))
    made.earlier = *std::move(recorded);
  else
    made.notes.push_back("the time and the metric of a step are not recorded: " + to_string(recorded.error()));
  return made;
}

result<void> restore_record(const fs::path& run, std::int64_t step, step_names names, const earlier_record& earlier,
                            bool durable) {
  if (identity_of(run / folder_name(step, names)) != earlier.folder) return {};
  SHARDMESH_TRY(run_record record, run_record::read(run));
  if (earlier.entry)
    record.steps.insert_or_assign(step, *earlier.entry);
  else
    record.steps.erase(step);
  return record.write(run, durable);
}

result<void> publish_step(const fs::path& run, std::int64_t step, step_names names, bool durable) {
  if (names != step_names::iteration) return {};
  return replace_text(run / tracker_file_name, fmt::format("{}\n", step), durable);
}

}  // namespace shardmesh
