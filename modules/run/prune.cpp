// SPDX-License-Identifier: Apache-2.0
module;
#include <sys/stat.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.run;

import shardmesh.dcp;
import shardmesh.storage;
import :latest_step;
import :run_lock;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t most_tracker_bytes = 4096;

// Whether a folder has a description that can refer to others. A folder that cannot be examined may have one.
bool may_refer(const fs::path& folder) {
  struct ::stat status{};
  return ::lstat((folder / ".metadata").c_str(), &status) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

// The folders to which a folder refers by its record of checksums, which may be there after the description is lost.
std::vector<std::string> recorded_references(const fs::path& folder) {
  std::set<std::string> folders;
  for (const std::string& file : recorded_files(folder))
    if (auto sibling = parse_sibling_file(file)) folders.insert(std::move(sibling->folder));
  return {folders.begin(), folders.end()};
}

class prune_planner {
 public:
  prune_planner(const fs::path& run, const prune_options& options) : run_(run), options_(options) {
    plan_.run = run;
    plan_.names = options.names;
  }

  result<prune_plan> make() {
    SHARDMESH_TRY(check_rules(options_.keep));
    SHARDMESH_TRY(steps_, list_steps(run_, options_.names));
    reasons_.resize(steps_.size());
    problems_.resize(steps_.size());
    for (std::size_t i = 0; i < steps_.size(); ++i) number_of_.emplace(steps_[i].path.filename().string(), i);
    SHARDMESH_TRY(check_steps());
    keep_by_rules();
    SHARDMESH_TRY(keep_links());
    keep_tracked();
    for (const std::string& folder : options_.in_use) keep(folder, "in use");
    SHARDMESH_TRY(look_for_leftovers());
    SHARDMESH_TRY(keep_for_other_folders());
    keep_referred();
    split();
    return std::move(plan_);
  }

 private:
  result<void> check_steps() {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      SHARDMESH_TRY(detail::check_current_call());
      step_check checked = check_step(steps_[i].path);
      // The step is not at fault.
      if (checked.problem && checked.problem->code == errc::no_memory) return *std::move(checked.problem);
      references_.push_back(checked.are_references_known ? std::move(checked.references)
                                                         : recorded_references(steps_[i].path));
      if (checked.problem && !checked.are_references_known && may_refer(steps_[i].path))
        block(steps_[i].path, *checked.problem);
      problems_[i] = std::move(checked.problem);
      if (!problems_[i] && (steps_[i].is_damaged || options_.damaged.contains(steps_[i].step)))
        problems_[i] = detail::found_by_resume(steps_[i].path);  // or the good ones could be deleted for it
    }
    return {};
  }

  // The folder may refer to any step, so every step must stay.
  void block(const fs::path& folder, const error& why) {
    plan_.notes.push_back("nothing is deleted, because " + escaped(folder.string()) +
                          " cannot be read and may refer to any step: " + to_string(why));
  }

  void keep_by_rules() {
    std::vector<run_step> good;
    std::vector<std::size_t> numbers;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (problems_[i]) {
        reasons_[i].emplace_back("fails the check");
        if (steps_[i].is_pinned) reasons_[i].emplace_back("pinned");
      } else {
        good.push_back(steps_[i]);
        numbers.push_back(i);
      }
    }
    std::vector<std::vector<std::string>> reasons = reasons_to_keep(good, options_.keep);
    for (std::size_t i = 0; i < good.size(); ++i) reasons_[numbers[i]] = std::move(reasons[i]);
    if (!numbers.empty()) reasons_[numbers.back()].emplace_back("newest good step");
  }

  // A link takes no space. Without the folder to which it leads, it would be broken: a step, or "best" of the user.
  result<void> keep_links() {
    std::error_code code;
    for (std::size_t i = 0; i < steps_.size(); ++i)
      if (fs::is_symlink(fs::symlink_status(steps_[i].path, code))) reasons_[i].emplace_back("a symbolic link");
    const fs::path real_run = fs::canonical(run_, code);
    if (code) return fail_sys(code.value(), "cannot resolve", run_.string());
    for (fs::directory_iterator at(run_, code), end; !code && at != end; at.increment(code)) {
      std::error_code unseen;
      if (at->is_symlink(unseen)) {
        for (const std::string& folder : folders_behind(at->path(), real_run))
          keep(folder, at->path().filename().string() + " leads to it");
      } else if (at->is_directory(unseen)) {
        keep_for_links_in(at->path(), real_run);
      }
    }
    if (code) return fail_sys(code.value(), "cannot list", run_.string());
    return {};
  }

  // The entries of the run to which a link leads: that of its text, and that of the file at the end of all links. None:
  // the link is broken.
  static std::set<std::string> folders_behind(const fs::path& link, const fs::path& real_run) {
    std::error_code code;
    const fs::path last = fs::canonical(link, code);
    if (code) return {};
    std::set<std::string> folders;
    const auto add = [&](const fs::path& target) {
      const fs::path inside = target.lexically_relative(real_run);
      if (!inside.empty()) folders.insert(inside.begin()->string());
    };
    add(last);
    const fs::path from = fs::canonical(link.parent_path(), code);
    const fs::path text = code ? fs::path() : fs::read_symlink(link, code);
    if (!code) add((from / text).lexically_normal());
    return folders;
  }

  // A folder needs the files of another one to which links in it lead, such as those of a tool that finds equal files.
  // Folders of the user may hold millions of files, so their sub-folders are not examined.
  void keep_for_links_in(const fs::path& folder, const fs::path& real_run) {
    const std::string name = folder.filename().string();
    const auto step = number_of_.find(name);
    std::set<std::string> needed;
    std::error_code code;
    for (fs::recursive_directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
      if (step == number_of_.end()) at.disable_recursion_pending();
      std::error_code unseen;
      if (at->is_symlink(unseen)) needed.merge(folders_behind(at->path(), real_run));
    }
    // A folder that is being written may have been renamed meanwhile.
    if (code && code != std::errc::no_such_file_or_directory)
      block(folder, fail_sys(code.value(), "cannot list", folder.string()));
    needed.erase(name);
    for (const std::string& other : needed) {
      if (step == number_of_.end())
        keep(other, "a link in " + name + " leads to it");
      else
        references_[step->second].push_back(other);
    }
  }

  // Megatron resumes from the step that its tracker file names: the one that was saved last, which need not be the
  // newest. If the file names no number, such as "release", Megatron resumes from no step.
  void keep_tracked() {
    if (options_.names != step_names::iteration) return;
    const auto bytes = read_file(run_ / tracker_file_name, most_tracker_bytes);
    if (!bytes) return;
    const std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
    const std::size_t first = text.find_first_not_of(" \t\r\n"), last = text.find_last_not_of(" \t\r\n");
    if (first == std::string_view::npos) return;
    const std::string_view digits = text.substr(first, last + 1 - first);
    std::int64_t step = 0;
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
    if (code != std::errc() || end != digits.data() + digits.size() || step < 0) return;
    keep(folder_name(step, options_.names), std::string(tracker_file_name) + " names it");
  }

  void keep(const std::string& folder, const std::string& reason) {
    const auto found = number_of_.find(folder);
    if (found != number_of_.end()) reasons_[found->second].push_back(reason);
  }

  // Other folders of the run may also be incremental checkpoints, such as a step that the user has renamed.
  result<void> keep_for_other_folders() {
    std::error_code code;
    for (fs::directory_iterator at(run_, code), end; !code && at != end; at.increment(code)) {
      const std::string folder = at->path().filename().string();
      std::error_code unseen;
      if (number_of_.contains(folder) || temporary_.contains(folder) || !fs::is_directory(at->path(), unseen)) continue;
      const auto references = may_refer(at->path()) ? dcp::references_of(at->path())
                                                    : result<std::vector<std::string>>(recorded_references(at->path()));
      if (!references) {
        block(at->path(), references.error());
        continue;
      }
      for (const std::string& referred : *references) keep(referred, folder + " refers to it");
    }
    if (code) return fail_sys(code.value(), "cannot list", run_.string());
    return {};
  }

  // References lead directly to the folder with the bytes. A step that is kept only because another refers to it has
  // its own references, because its description stays readable.
  void keep_referred() {
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < steps_.size(); ++i)
      if (!reasons_[i].empty()) open.push_back(i);
    for (std::size_t next = 0; next < open.size(); ++next) {
      const std::size_t from = open[next];
      for (const std::string& folder : references_[from]) {
        const auto found = number_of_.find(folder);
        if (found == number_of_.end() || found->second == from) continue;
        if (reasons_[found->second].empty()) open.push_back(found->second);
        reasons_[found->second].push_back(steps_[from].path.filename().string() + " refers to it");
      }
    }
  }

  void split() {
    const bool is_blocked = !plan_.notes.empty();
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (reasons_[i].empty() && is_blocked) reasons_[i].emplace_back("another folder may refer to it");
      if (reasons_[i].empty())
        plan_.deleted.push_back({steps_[i], stored_bytes_of_step(steps_[i].path), std::move(references_[i])});
      else
        plan_.kept.push_back({steps_[i], std::move(reasons_[i]), std::move(problems_[i])});
    }
  }

  // Folders that are being written count as leftovers with an owner. Their references are not read, because their
  // description may be incomplete: `in_use` has those of the run itself, and any other save checks its references
  // before it commits.
  result<void> look_for_leftovers() {
    SHARDMESH_TRY(std::vector<leftover> found, find_leftovers(run_));
    std::error_code code;
    for (leftover& one : found) {
      if (!fs::equivalent(one.path.parent_path(), run_, code)) continue;
      temporary_.insert(one.path.filename().string());
      if (one.owner == leftover_owner::dead) plan_.leftovers.push_back(std::move(one));
    }
    return {};
  }

  const fs::path& run_;
  const prune_options& options_;
  prune_plan plan_;
  std::vector<run_step> steps_;
  std::vector<std::vector<std::string>> reasons_, references_;
  std::vector<std::optional<error>> problems_;
  std::map<std::string, std::size_t> number_of_;
  std::set<std::string> temporary_;  // names of folders that are being written, or were left
};

// The positions of the steps, each before those to which it refers.
std::vector<std::size_t> referring_first(const std::vector<deleted_step>& steps) {
  std::map<std::string, std::size_t> number_of;
  for (std::size_t i = 0; i < steps.size(); ++i) number_of.emplace(steps[i].step.path.filename().string(), i);
  std::vector<std::vector<std::size_t>> referred(steps.size());
  std::vector<std::int64_t> referring(steps.size());  // how many steps refer to this one
  for (std::size_t i = 0; i < steps.size(); ++i)
    for (const std::string& folder : steps[i].references)
      if (const auto found = number_of.find(folder); found != number_of.end() && found->second != i) {
        referred[i].push_back(found->second);
        ++referring[found->second];
      }
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < steps.size(); ++i)
    if (referring[i] == 0) order.push_back(i);
  for (std::size_t next = 0; next < order.size(); ++next)
    for (const std::size_t other : referred[order[next]])
      if (--referring[other] == 0) order.push_back(other);
  // No save makes steps that refer to each other.
  for (std::size_t i = 0; i < steps.size(); ++i)
    if (referring[i] > 0) order.push_back(i);
  return order;
}

// Returns whether a run has other steps than when the plan was made. Steps that were saved again are others.
bool has_changed(const prune_plan& plan, const std::vector<run_step>& now) {
  std::map<std::int64_t, const run_step*> before;
  for (const kept_step& one : plan.kept) before.emplace(one.step.step, &one.step);
  for (const deleted_step& one : plan.deleted) before.emplace(one.step.step, &one.step);
  return before.size() != now.size() || std::any_of(now.begin(), now.end(), [&](const run_step& one) {
           const auto found = before.find(one.step);
           return found == before.end() || found->second->saved != one.saved ||
                  found->second->is_damaged != one.is_damaged;
         });
}

// The steps of a plan that no step of the run needs now, and without which the run still has its newest good step.
result<prune_plan> still_deletable(const prune_plan& plan, const std::vector<run_step>& now) {
  std::map<std::int64_t, const run_step*> planned;
  for (const deleted_step& one : plan.deleted) planned.emplace(one.step.step, &one.step);
  prune_options options{.names = plan.names};
  options.keep.since = std::chrono::system_clock::time_point::max();  // a rule that keeps no step
  for (const run_step& one : now) {
    const auto found = planned.find(one.step);
    if (found == planned.end() || found->second->saved != one.saved)
      options.in_use.push_back(one.path.filename().string());
  }
  SHARDMESH_TRY(prune_plan made, plan_prune(plan.run, options));
  made.leftovers = plan.leftovers;
  return made;
}

}  // namespace

std::int64_t prune_plan::deleted_bytes() const {
  std::int64_t bytes = 0;
  const auto add = [&](std::int64_t more) {
    bytes = checked_add(bytes, more).value_or(std::numeric_limits<std::int64_t>::max());
  };
  for (const deleted_step& one : deleted) add(one.size_bytes);
  for (const leftover& one : leftovers) add(one.size_bytes);
  return bytes;
}

result<prune_plan> plan_prune(const fs::path& run, const prune_options& options) {
  return prune_planner(run, options).make();
}

result<prune_report> prune_run(const prune_plan& plan) {
  SHARDMESH_TRY(const run_lock lock, run_lock::take(plan.run));
  if (plan.deleted.empty()) return carry_out(plan);
  // A run may have saved steps since the plan was made.
  SHARDMESH_TRY(const std::vector<run_step> now, list_steps(plan.run, plan.names));
  if (!has_changed(plan, now)) return carry_out(plan);
  SHARDMESH_TRY(const prune_plan still, still_deletable(plan, now));
  prune_report report = carry_out(still);
  for (const std::string& note : still.notes)
    report.problems.push_back(fail(errc::bad_format, note).with_file(plan.run.string()));
  return report;
}

prune_report carry_out(const prune_plan& plan) {
  prune_report report;
  for (const leftover& one : plan.leftovers) {
    const auto removed = remove_leftover(one.path, {.may_replace = holds_one_checkpoint});
    if (!removed && removed.error().sys == ENOENT) continue;
    if (!removed) {
      report.problems.push_back(removed.error());
      continue;
    }
    ++report.leftovers;
    report.bytes += one.size_bytes;
  }
  std::set<std::string> needed;  // by steps that stay after all
  for (const std::size_t i : referring_first(plan.deleted)) {
    const deleted_step& one = plan.deleted[i];
    const auto keep = [&] { needed.insert(one.references.begin(), one.references.end()); };
    if (needed.contains(one.step.path.filename().string()) || has_pin(plan.run, one.step.step, plan.names)) {
      keep();
      continue;
    }
    if (const auto removed = discard_destination(one.step.path, holds_one_checkpoint); !removed) {
      if (removed.error().sys != ENOENT) keep();
      report.problems.push_back(removed.error());
      continue;
    }
    ++report.steps;
    report.bytes += one.size_bytes;
  }
  return report;
}

}  // namespace shardmesh
