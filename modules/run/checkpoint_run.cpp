// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <process_token.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.run;

import shardmesh.comm;
import shardmesh.storage;
import :background_prune;
import :run_lock;
import :save_preparation;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t last_number = std::numeric_limits<std::int64_t>::max();

// Rank 0 makes an answer, and every rank gets it, or rank 0's error.
result<std::vector<std::byte>> ask_first_rank(communicator_ref comm, std::span<const agreement_record> records,
                                              const call_options& call,
                                              function_ref<result<std::vector<std::byte>>()> answer) {
  agree_options options;
  std::optional<error> problem;
  if (comm.rank() == 0) {
    try {
      auto made = answer();
      if (made)
        options.note = *std::move(made);
      else
        problem = std::move(made).error();
    } catch (...) {
      problem = detail::caught_error();
    }
  }
  if (problem) options.problem = &*problem;
  SHARDMESH_TRY(agreement_notes notes, agree(comm, records, options, call));
  return std::move(notes.front());
}

error malformed_answer() {
  return fail(errc::communication, "rank 0 sent a malformed answer").with_rank(0);
}

// An error of the step, not of the caller, so that the step before may load.
bool is_damage(errc code) {
  switch (code) {
    case errc::bad_format:
    case errc::bad_pickle:
    case errc::checksum_mismatch:
    case errc::gap:
    case errc::incomplete_save:
    case errc::io:
    case errc::unsafe_path:
      return true;
    default:
      return false;
  }
}

call_options limits_of(const rank_save_options& saving, const char* call) {
  return {.within = saving.within, .cancel = saving.cancel, .name = call};
}

// A save in the background. The communicator outlives the save.
struct flight {
  std::int64_t step = 0;
  bool durable = true;
  fs::path previous;
  any_communicator comm;
  save_in_progress saving;
};

// Rank 0's answer to `resume`.
struct chosen_step {
  std::optional<std::int64_t> step;
  std::vector<error> skipped;
};

}  // namespace

struct checkpoint_run::state {
  fs::path folder;
  checkpoint_run_options options;
  bool is_first_rank = false;
  run_lock lock;
  std::list<flight> flights;      // oldest first
  std::vector<ended_save> ended;  // not returned yet
  background_prune prune;
  detail::maker_process maker;

  fs::path path_of(std::int64_t step) const { return folder / folder_name(step, options.names); }
  std::vector<agreement_record> record_of(std::int64_t step) const {
    return {{"folder", folder.string()}, {"step", fmt::format("{}", step)}};
  }
  std::set<std::string> needed() const;
  result<rank_save_options> prepare(std::int64_t step, communicator_ref comm, const run_save_options& options);
  result<std::int64_t> count_ended(std::int64_t step, communicator_ref comm, const call_options& call);
  void end_oldest();
  void after_save(std::int64_t step, bool durable);
  result<chosen_step> choose(communicator_ref comm, std::optional<std::int64_t> below, const call_options& call);
};

// The folders to which saves in progress refer. What these refer to themselves is kept with them.
std::set<std::string> checkpoint_run::state::needed() const {
  std::set<std::string> folders;
  for (const flight& one : flights)
    if (!one.previous.empty()) folders.insert(one.previous.filename().string());
  return folders;
}

// Collective: returns the options of the save as rank 0 decides them.
result<rank_save_options> checkpoint_run::state::prepare(std::int64_t step, communicator_ref comm,
                                                         const run_save_options& given) {
  const auto answer = [&]() -> result<std::vector<std::byte>> {
    if (step < 0)
      return fail(errc::invalid_argument, "the number of a step is negative")
          .with_file(folder.string())
          .with_values("0 or more", fmt::format("{}", step));
    // A prune that began before this save does not know the step to which this one will refer.
    if (this->options.incremental) prune.wait();
    step_to_save save{folder, step, options, given, {}, needed()};
    for (const flight& one : flights) save.in_flight.push_back(one.step);
    SHARDMESH_TRY(save_preparation made, prepare_save(save));
    for (std::string& note : made.notes) prune.add_note(std::move(note));
    detail::wire_writer out;
    out.flag(made.overwrite);
    out.text(made.previous.string());
    return std::move(out).take();
  };
  SHARDMESH_TRY(const std::vector<std::byte> bytes,
                ask_first_rank(comm, record_of(step), limits_of(given.saving, "run.save"), answer));
  detail::wire_reader in(bytes);
  rank_save_options how = given.saving;
  how.overwrite = in.flag();
  how.previous = in.text();
  if (!in.finished()) return malformed_answer();
  return how;
}

// Collective: returns the number of oldest saves that have ended on every rank.
result<std::int64_t> checkpoint_run::state::count_ended(std::int64_t step, communicator_ref comm,
                                                        const call_options& call) {
  std::int64_t mine = 0;
  for (const flight& one : flights) {
    if (!one.saving.done()) break;
    ++mine;
  }
  detail::wire_writer out;
  out.number(mine);
  agree_options count;
  count.note = std::move(out).take();
  SHARDMESH_TRY(const agreement_notes notes, agree(comm, record_of(step), count, call));
  for (const std::vector<std::byte>& note : notes) {
    detail::wire_reader in(note);
    mine = std::min(mine, in.in_range(0, last_number));
    if (!in.finished()) return fail(errc::communication, "a rank sent a malformed count of saves");
  }
  return mine;
}

void checkpoint_run::state::end_oldest() {
  flight& oldest = flights.front();
  ended.push_back({oldest.step, oldest.saving.wait()});
  const bool is_saved = ended.back().outcome.has_value();
  const std::int64_t step = oldest.step;
  const bool durable = oldest.durable;
  flights.pop_front();
  if (is_saved) after_save(step, durable);
}

// Does rank 0's work after a step has appeared. Its problems are notes, because the step itself is saved.
void checkpoint_run::state::after_save(std::int64_t step, bool durable) {
  if (!is_first_rank) return;
  if (const auto published = publish_step(folder, step, options.names, durable); !published)
    prune.add_note(to_string(published.error()));
  if (!options.keep.any()) return;
  const std::set<std::string> folders = needed();
  prune.start(folder, {.names = options.names, .keep = options.keep, .in_use = {folders.begin(), folders.end()}});
}

// Collective: rank 0 finds the newest good step.
result<chosen_step> checkpoint_run::state::choose(communicator_ref comm, std::optional<std::int64_t> below,
                                                  const call_options& call) {
  const auto answer = [&]() -> result<std::vector<std::byte>> {
    SHARDMESH_TRY(const latest_step latest, find_latest_step(folder, options.names, {}, below));
    detail::wire_writer out;
    out.number(latest.step ? latest.step->step : -1);
    out.number(static_cast<std::int64_t>(latest.skipped.size()));
    for (const error& skipped : latest.skipped) out.bytes(to_bytes(skipped));
    return std::move(out).take();
  };
  const std::vector<agreement_record> records{{"folder", folder.string()}};
  SHARDMESH_TRY(const std::vector<std::byte> bytes, ask_first_rank(comm, records, call, answer));
  detail::wire_reader in(bytes);
  chosen_step made;
  const std::int64_t step = in.in_range(-1, last_number);
  if (step >= 0) made.step = step;
  const std::size_t count = in.count();
  for (std::size_t i = 0; i < count && in.ok(); ++i) {
    auto skipped = error_from_bytes(in.bytes());
    if (!skipped) return malformed_answer();
    made.skipped.push_back(*std::move(skipped));
  }
  if (!in.finished()) return malformed_answer();
  return made;
}

checkpoint_run::checkpoint_run(std::unique_ptr<state> made) : state_(std::move(made)) {}
checkpoint_run::checkpoint_run(checkpoint_run&&) noexcept = default;
checkpoint_run& checkpoint_run::operator=(checkpoint_run&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}
// A forked child has no threads of the parent's saves, so it leaks the state.
checkpoint_run::~checkpoint_run() {
  if (state_ && !state_->maker.is_this()) static_cast<void>(state_.release());
}

result<checkpoint_run> checkpoint_run::open(const fs::path& folder, communicator_ref comm,
                                            const checkpoint_run_options& options) {
  auto made = std::make_unique<state>();
  made->folder = folder;
  made->options = options;
  made->is_first_rank = comm.rank() == 0;
  const auto answer = [&]() -> result<std::vector<std::byte>> {
    SHARDMESH_TRY(check_rules(options.keep));
    if (options.in_flight < 1)
      return fail(errc::invalid_argument, "a run allows no save in flight")
          .with_file(folder.string())
          .with_values("in_flight of 1 or more", fmt::format("{}", options.in_flight));
    if (is_url(folder))
      return fail(errc::unsupported, "a run is a local folder")
          .with_file(printable_url(folder.string()))
          .with_hint("choose a folder in a file system that all ranks see");
    std::error_code code;
    fs::create_directories(folder, code);
    if (code) return fail_sys(code.value(), "cannot create the folder of the run", folder.string());
    SHARDMESH_TRY(made->lock, run_lock::take(folder));
    return std::vector<std::byte>();
  };
  const std::vector<agreement_record> records{
      {"folder", folder.string()},
      {"options", fmt::format("names {}, in_flight {}, when_full {}, incremental {}", name(options.names),
                              options.in_flight, static_cast<int>(options.when_full), options.incremental)}};
  SHARDMESH_TRY(ask_first_rank(comm, records, {.name = "run.open"}, answer));
  return checkpoint_run(std::move(made));
}

result<save_report> checkpoint_run::save_by(std::int64_t step, communicator_ref comm, const run_save_options& options,
                                            detail::run_saver saver) {
  SHARDMESH_TRY(const rank_save_options how, state_->prepare(step, comm, options));
  auto saved = saver(state_->path_of(step), how);
  if (saved) state_->after_save(step, how.durable);
  return saved;
}

result<started_save> checkpoint_run::start_by(std::int64_t step, communicator_ref comm, const run_save_options& options,
                                              detail::run_starter starter) {
  const call_options call = limits_of(options.saving, "run.start_save");
  SHARDMESH_TRY(const std::int64_t ended, state_->count_ended(step, comm, call));
  for (std::int64_t i = 0; i < ended; ++i) state_->end_oldest();
  const auto most = static_cast<std::size_t>(state_->options.in_flight);
  started_save made;
  made.is_skipped = state_->flights.size() >= most && state_->options.when_full == full_flight::skip;
  if (!made.is_skipped) {
    while (state_->flights.size() >= most) state_->end_oldest();
    SHARDMESH_TRY(const rank_save_options how, state_->prepare(step, comm, options));
    SHARDMESH_TRY(any_communicator own, subgroup(comm, rank_group::world(comm.size()), call));
    SHARDMESH_TRY(save_in_progress saving, starter(state_->path_of(step), own, how));
    state_->flights.push_back({step, how.durable, how.previous, std::move(own), std::move(saving)});
  }
  made.ended = std::exchange(state_->ended, {});
  return made;
}

std::vector<ended_save> checkpoint_run::wait() {
  while (!state_->flights.empty()) state_->end_oldest();
  state_->prune.wait();
  return std::exchange(state_->ended, {});
}

result<resumed_run> checkpoint_run::resume(communicator_ref comm) {
  SHARDMESH_TRY(chosen_step chosen, state_->choose(comm, std::nullopt, {.name = "run.resume"}));
  resumed_run made;
  if (!chosen.step && !chosen.skipped.empty()) return fail_all(std::move(chosen.skipped));
  made.step = chosen.step;
  if (chosen.step) made.path = state_->path_of(*chosen.step);
  made.skipped = std::move(chosen.skipped);
  return made;
}

result<resumed_run> checkpoint_run::resume_by(communicator_ref comm, const rank_load_options& options,
                                              detail::run_loader loader) {
  const call_options call{.within = options.within, .cancel = options.cancel, .name = "run.resume"};
  resumed_run made;
  std::optional<std::int64_t> below;
  for (;;) {
    SHARDMESH_TRY(chosen_step chosen, state_->choose(comm, below, call));
    for (error& skipped : chosen.skipped) made.skipped.push_back(std::move(skipped));
    if (!chosen.step) break;
    const fs::path path = state_->path_of(*chosen.step);
    auto loaded = loader(path);
    agree_options told;
    if (!loaded) told.problem = &loaded.error();
    const std::vector<agreement_record> records = state_->record_of(*chosen.step);
    const auto agreed = agree(comm, records, told, call);
    if (loaded && agreed) {
      made.step = chosen.step;
      made.path = path;
      made.loaded = *std::move(loaded);
      return made;
    }
    // The communicator may have failed, and not the load: then its error is no damage.
    if (agreed || !is_damage(agreed.error().code)) return agreed ? loaded.error() : agreed.error();
    error skipped = fail(agreed.error().code, "the step is skipped: " + to_string(agreed.error()));
    made.skipped.push_back(std::move(skipped).with_file(path.string()));
    below = chosen.step;
  }
  if (!made.skipped.empty()) return fail_all(std::move(made.skipped));
  return made;
}

result<std::vector<run_step>> checkpoint_run::steps() const {
  return list_steps(state_->folder, state_->options.names);
}

result<latest_step> checkpoint_run::latest(const step_check_options& check) const {
  return find_latest_step(state_->folder, state_->options.names, check);
}

std::vector<std::string> checkpoint_run::take_notes() {
  return state_->prune.take_notes();
}

}  // namespace shardmesh
