// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.run;

import shardmesh.storage;
import :background_prune;
import :run_lock;
import :run_record;
import :save_preparation;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

// A save that has begun and not ended.
struct begun_save {
  std::int64_t step = 0;
  fs::path previous;
  std::optional<earlier_record> earlier;
};

}  // namespace

struct run_writer::state {
  fs::path folder;
  checkpoint_run_options options;
  run_lock lock;
  std::vector<begun_save> begun;   // oldest first
  std::set<std::int64_t> damaged;  // see `note_resume`; the record has a copy for other processes
  background_prune background;

  std::set<std::string> needed() const;
  prune_options pruning(const keep_rules& keep) const;
  bool has_begun(std::int64_t step) const;
  void set_damaged(std::set<std::int64_t> steps);
};

// The folders to which saves in progress refer. The folders to which these refer in turn are kept with them.
std::set<std::string> run_writer::state::needed() const {
  std::set<std::string> folders;
  for (const begun_save& one : begun)
    if (!one.previous.empty()) folders.insert(one.previous.filename().string());
  return folders;
}

prune_options run_writer::state::pruning(const keep_rules& keep) const {
  const std::set<std::string> folders = needed();
  return {.names = options.names, .keep = keep, .in_use = {folders.begin(), folders.end()}, .damaged = damaged};
}

bool run_writer::state::has_begun(std::int64_t step) const {
  return std::any_of(begun.begin(), begun.end(), [&](const begun_save& one) { return one.step == step; });
}

void run_writer::state::set_damaged(std::set<std::int64_t> steps) {
  if (steps == damaged) return;
  damaged = std::move(steps);
  if (const auto recorded = record_damage(folder, options.names, damaged); !recorded)
    background.add_note("the damaged steps are not recorded: " + to_string(recorded.error()));
}

run_writer::run_writer(std::unique_ptr<state> made) : state_(std::move(made)) {}
run_writer::run_writer(run_writer&&) noexcept = default;
run_writer& run_writer::operator=(run_writer&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}
run_writer::~run_writer() = default;

result<run_writer> run_writer::open(const fs::path& folder, const checkpoint_run_options& options) {
  SHARDMESH_TRY(check_rules(options.keep));
  if (options.in_flight < 1)
    return fail(errc::invalid_argument, "a run allows no save in flight")
        .with_file(folder.string())
        .with_values("in_flight of 1 or more", fmt::format("{}", options.in_flight));
  if (is_url(folder))
    return fail(errc::unsupported, "a run is a local folder")
        .with_file(printable_url(folder.string()))
        .with_hint("choose a folder in a file system that all ranks see");
  SHARDMESH_TRY(detail::check_not_shortened(folder));
  std::error_code code;
  fs::create_directories(folder, code);
  if (code) return fail_sys(code.value(), "cannot create the folder of the run", folder.string());
  auto made = std::make_unique<state>();
  made->folder = folder;
  made->options = options;
  SHARDMESH_TRY(made->lock, run_lock::take(folder));
  if (const auto record = run_record::read(folder))  // the first save tells of a damaged record
    for (const auto& [step, entry] : record->steps)
      if (entry.is_damaged) made->damaged.insert(step);
  return run_writer(std::move(made));
}

result<step_preparation> run_writer::begin_save(std::int64_t step, const run_save_options& saving) {
  if (step < 0)
    return fail(errc::invalid_argument, "the number of a step is negative")
        .with_file(state_->folder.string())
        .with_values("0 or more", fmt::format("{}", step));
  // A prune that began before this save does not know the step to which this one will refer.
  if (state_->options.incremental) state_->background.wait();
  step_to_save save{state_->folder, step, state_->options, saving, {}, state_->needed(), state_->damaged};
  for (const begun_save& one : state_->begun) save.in_flight.push_back(one.step);
  SHARDMESH_TRY(save_preparation made, prepare_save(save));
  for (std::string& note : made.notes) state_->background.add_note(std::move(note));
  step_preparation prepared{state_->folder / folder_name(step, state_->options.names), made.overwrite, made.previous};
  // Last: after an exception, the save has not begun.
  state_->begun.push_back({step, std::move(made.previous), std::move(made.earlier)});
  return prepared;
}

void run_writer::end_save(std::int64_t step, bool is_saved, bool durable) {
  const auto ended =
      std::find_if(state_->begun.begin(), state_->begun.end(), [&](const begun_save& one) { return one.step == step; });
  std::optional<earlier_record> earlier;
  if (ended != state_->begun.end()) {
    earlier = std::move(ended->earlier);
    state_->begun.erase(ended);
  }
  if (!is_saved) {
    if (!earlier) return;
    if (const auto restored = restore_record(state_->folder, step, state_->options.names, *earlier, durable); !restored)
      state_->background.add_note("the time and the metric of a step are not restored: " + to_string(restored.error()));
    return;
  }
  std::set<std::int64_t> damaged = state_->damaged;
  damaged.erase(step);
  state_->set_damaged(std::move(damaged));
  if (const auto published = publish_step(state_->folder, step, state_->options.names, durable); !published)
    state_->background.add_note(to_string(published.error()));
  if (state_->options.keep.any()) state_->background.start(state_->folder, state_->pruning(state_->options.keep));
}

void run_writer::note_resume(std::int64_t step) {
  const auto steps = find_steps(state_->folder, state_->options.names);
  if (!steps) {
    state_->background.add_note("the damaged steps are not recorded: " + to_string(steps.error()));
    return;
  }
  std::set<std::int64_t> damaged;
  for (const run_step& one : *steps) {
    if (one.step == step) continue;
    // A save in the background may have ended since the resume looked for steps.
    const bool is_new = one.step > step && !state_->has_begun(one.step);
    if (state_->damaged.contains(one.step) || (is_new && check_step(one.path).ok())) damaged.insert(one.step);
  }
  state_->set_damaged(std::move(damaged));
}

result<prune_plan> run_writer::plan_prune(const keep_rules& keep) const {
  return shardmesh::plan_prune(state_->folder, state_->pruning(keep));
}

prune_report run_writer::prune(const prune_plan& plan) {
  state_->background.wait();
  return carry_out(plan);
}

void run_writer::wait() {
  state_->background.wait();
}

std::vector<std::string> run_writer::take_notes() {
  return state_->background.take_notes();
}

}  // namespace shardmesh
