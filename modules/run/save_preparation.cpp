// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <sys/stat.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
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

// Why the step that is there is damaged; nothing: it is good.
std::optional<std::string> damage_of(const step_to_save& save, const fs::path& path) {
  if (const step_check checked = check_step(path); !checked.ok()) return to_string(*checked.problem);
  if (save.damaged.contains(save.step)) return "a resume could not load it";
  return std::nullopt;
}

// Returns a folder of the run that is no step and refers to this one, such as a step that the user has renamed.
// Temporary folders do not count: `needed` has the references of those that are being written.
result<std::optional<std::string>> other_folder_with(const step_to_save& save, const std::string& referred) {
  std::error_code code;
  for (fs::directory_iterator at(save.run, code), end; !code && at != end; at.increment(code)) {
    std::string name = at->path().filename().string();
    std::error_code unseen;
    if (step_of_folder(name, save.options.names) || !at->is_directory(unseen)) continue;
    if (name.starts_with('.') && name.find(".shardmesh-tmp-") != std::string::npos) continue;
    if (!is_there(at->path() / ".metadata")) continue;
    const auto references = dcp::references_of(at->path());
    if (!references) continue;  // cannot be read
    if (std::find(references->begin(), references->end(), referred) != references->end())
      return std::optional(std::move(name));
  }
  if (code) return fail_sys(code.value(), "cannot list", save.run.string());
  return std::optional<std::string>();
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
  SHARDMESH_TRY(const std::optional<std::string> other, other_folder_with(save, folder));
  if (other) return refuse(*other);
  return {};
}

// The step to which a link leads may belong to another run, whose lock and references this run does not know.
result<void> check_no_link(const fs::path& step) {
  std::error_code code;
  if (!fs::is_symlink(fs::symlink_status(step, code)) || !fs::exists(step, code)) return {};
  return fail(errc::destination_exists, "the step is a symbolic link, and the folder to which it leads is not replaced")
      .with_file(step.string())
      .with_hint("remove the link, or save under another number");
}

// The newest good step that the new one can refer to; empty: none.
result<fs::path> choose_previous(const step_to_save& save, std::vector<std::string>& notes) {
  SHARDMESH_TRY(latest_step latest, find_latest_step(save.run, save.options.names));
  while (latest.step && (latest.step->step == save.step || save.damaged.contains(latest.step->step))) {
    SHARDMESH_TRY(latest, find_latest_step(save.run, save.options.names, {}, latest.step->step));
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
  // The record has no names of folders, so the entry may belong to a step of another convention.
  const auto has_folder = [&](std::int64_t step) {
    constexpr std::array all{step_names::step, step_names::checkpoint, step_names::iteration};
    return std::any_of(all.begin(), all.end(),
                       [&](step_names names) { return is_there(save.run / folder_name(step, names)); });
  };
  const auto is_gone = [&](const auto& entry) {
    return std::find(save.in_flight.begin(), save.in_flight.end(), entry.first) == save.in_flight.end() &&
           !has_folder(entry.first);
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
  made.is_damaged = save.damaged.contains(save.step);  // until the new step is there
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
    SHARDMESH_TRY(check_no_link(path));
    if (!made.overwrite)
      if (const auto damage = damage_of(save, path)) {
        made.overwrite = true;
        made.notes.push_back(fmt::format("{}: the damaged step is replaced: {}", path.string(), *damage));
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
