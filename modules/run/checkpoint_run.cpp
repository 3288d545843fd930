// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
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
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>
module shardmesh.run;

import shardmesh.comm;
import :rank_object_reading;

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

std::vector<std::byte> encode_count(std::int64_t count) {
  detail::wire_writer out;
  out.number(count);
  return std::move(out).take();
}

// Returns -1 for malformed bytes.
std::int64_t decode_count(std::span<const std::byte> bytes) {
  detail::wire_reader in(bytes);
  const std::int64_t count = in.in_range(0, last_number);
  return in.finished() ? count : -1;
}

// Returns whether an error shows damage to the step. Then `resume` tries the step before it.
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
  std::optional<run_writer> writer;  // of rank 0
  std::list<flight> flights;         // oldest first
  std::vector<ended_save> ended;     // not returned yet
  save_plan_cache plans = save_plan_cache::make();
  detail::maker_process maker;

  // A forked child has neither the lock nor the threads of the run.
  result<void> check_process() const {
    if (maker.is_this()) return {};
    return fail(errc::invalid_argument, "the run belongs to the process that forked this one")
        .with_file(folder.string())
        .with_hint("open the run in this process");
  }
  fs::path path_of(std::int64_t step) const { return folder / folder_name(step, options.names); }
  std::vector<agreement_record> record_of(std::int64_t step) const {
    return {{"folder", folder.string()}, {"step", fmt::format("{}", step)}};
  }
  result<rank_save_options> prepare(std::int64_t step, communicator_ref comm, const run_save_options& options);
  result<std::int64_t> count_ended(std::int64_t step, communicator_ref comm, const call_options& call);
  void end_oldest();
  void end_save(std::int64_t step, bool is_saved, bool durable);
  result<resumed_objects_of_rank> resume_objects(std::int64_t step, communicator_ref comm, const call_options& call);
  result<chosen_step> choose(communicator_ref comm, std::optional<std::int64_t> below, const call_options& call);
};

// Collective: returns the options of the save as rank 0 decides them. After it has succeeded, call `end_save`.
result<rank_save_options> checkpoint_run::state::prepare(std::int64_t step, communicator_ref comm,
                                                         const run_save_options& given) {
  bool has_begun = false;
  const auto answer = [&]() -> result<std::vector<std::byte>> {
    SHARDMESH_TRY(const step_preparation made, writer->begin_save(step, given));
    has_begun = true;
    detail::wire_writer out;
    out.flag(made.overwrite);
    out.text(made.previous.string());
    return std::move(out).take();
  };
  const auto ask = [&]() -> result<rank_save_options> {
    SHARDMESH_TRY(const std::vector<std::byte> bytes,
                  ask_first_rank(comm, record_of(step), limits_of(given.saving, "run.save"), answer));
    detail::wire_reader in(bytes);
    rank_save_options how = given.saving;
    if (how.plans.is_none()) how.plans = plans;
    how.overwrite = in.flag();
    how.previous = in.text();
    if (!in.finished()) return malformed_answer();
    return how;
  };
  rank_save_options decided;
  const auto asked = detail::guarded(comm, [&]() -> result<void> {
    SHARDMESH_TRY(decided, ask());
    return {};
  });
  if (asked) return decided;
  if (has_begun) end_save(step, false, given.saving.durable);
  return asked.error();
}

// Collective: returns the number of oldest saves that have ended on every rank.
result<std::int64_t> checkpoint_run::state::count_ended(std::int64_t step, communicator_ref comm,
                                                        const call_options& call) {
  std::int64_t mine = 0;
  for (const flight& one : flights) {
    if (!one.saving.done()) break;
    ++mine;
  }
  agree_options count;
  count.note = encode_count(mine);
  count.combine = [](std::vector<std::byte>& all, std::span<const std::byte> one) {
    all = encode_count(std::min(decode_count(all), decode_count(one)));
  };
  SHARDMESH_TRY(const agreement_notes notes, agree(comm, record_of(step), count, call));
  const std::int64_t least = decode_count(notes.front());
  if (least < 0) return fail(errc::communication, "a rank sent a malformed count of saves");
  return least;
}

void checkpoint_run::state::end_oldest() {
  flight& oldest = flights.front();
  ended.push_back({oldest.step, oldest.saving.wait()});
  const bool is_saved = ended.back().outcome.has_value();
  const std::int64_t step = oldest.step;
  const bool durable = oldest.durable;
  flights.pop_front();
  end_save(step, is_saved, durable);
}

void checkpoint_run::state::end_save(std::int64_t step, bool is_saved, bool durable) {
  if (writer) writer->end_save(step, is_saved, durable);
}

// Collective: returns this rank's objects of a step, or the same error on every rank.
result<resumed_objects_of_rank> checkpoint_run::state::resume_objects(std::int64_t step, communicator_ref comm,
                                                                      const call_options& call) {
  const auto answer = [&] { return read_rank_objects(path_of(step), comm.size(), options); };
  SHARDMESH_TRY(const std::vector<std::byte> bytes, ask_first_rank(comm, record_of(step), call, answer));
  auto chosen = choose_rank_objects(bytes, comm.rank(), comm.size(), options);
  agree_options told;
  if (!chosen) told.problem = &chosen.error();
  SHARDMESH_TRY(agree(comm, record_of(step), told, call));
  return chosen;
}

// Collective: rank 0 finds the newest good step.
result<chosen_step> checkpoint_run::state::choose(communicator_ref comm, std::optional<std::int64_t> below,
                                                  const call_options& call) {
  const auto answer = [&]() -> result<std::vector<std::byte>> {
    SHARDMESH_TRY(const latest_step latest, detail::find_step_to_resume(folder, options.names, {}, below));
    if (!latest.step && latest.skipped.empty() && !below) SHARDMESH_TRY(check_first_step(folder, options.names));
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
  const auto answer = [&]() -> result<std::vector<std::byte>> {
    SHARDMESH_TRY(made->writer, run_writer::open(folder, options));
    return std::vector<std::byte>();
  };
  const std::vector<agreement_record> records{
      {"folder", folder.string()},
      {"options",
       fmt::format("names {}, in_flight {}, when_full {}, incremental {}, when_resized {}, converts {}",
                   name(options.names), options.in_flight, static_cast<int>(options.when_full), options.incremental,
                   static_cast<int>(options.when_resized), static_cast<bool>(options.convert_objects))}};
  SHARDMESH_TRY(ask_first_rank(comm, records, {.name = "run.open"}, answer));
  return checkpoint_run(std::move(made));
}

result<save_report> checkpoint_run::save_by(std::int64_t step, communicator_ref comm, const run_save_options& options,
                                            detail::run_saver saver) {
  SHARDMESH_TRY(state_->check_process());
  SHARDMESH_TRY(const rank_save_options how, state_->prepare(step, comm, options));
  // An exception becomes an error, because a step that never ends would keep others from being replaced and pruned.
  save_report report;
  const auto saved = detail::guarded(comm, [&]() -> result<void> {
    SHARDMESH_TRY(report, saver(state_->path_of(step), how));
    return {};
  });
  state_->end_save(step, saved.has_value(), how.durable);
  if (!saved) return saved.error();
  return report;
}

result<started_save> checkpoint_run::start_by(std::int64_t step, communicator_ref comm, const run_save_options& options,
                                              detail::run_starter starter) {
  SHARDMESH_TRY(state_->check_process());
  const call_options call = limits_of(options.saving, "run.start_save");
  SHARDMESH_TRY(const std::int64_t ended, state_->count_ended(step, comm, call));
  for (std::int64_t i = 0; i < ended; ++i) state_->end_oldest();
  const auto most = static_cast<std::size_t>(state_->options.in_flight);
  started_save made;
  made.is_skipped = state_->flights.size() >= most && state_->options.when_full == full_flight::skip;
  if (!made.is_skipped) {
    while (state_->flights.size() >= most) state_->end_oldest();
    SHARDMESH_TRY(const rank_save_options how, state_->prepare(step, comm, options));
    const auto started = detail::guarded(comm, [&]() -> result<void> {
      SHARDMESH_TRY(any_communicator own, subgroup(comm, rank_group::world(comm.size()), call));
      SHARDMESH_TRY(save_in_progress saving, starter(state_->path_of(step), own, how));
      state_->flights.push_back(flight{step, how.durable, std::move(own), std::move(saving)});
      return {};
    });
    if (!started) {
      state_->end_save(step, false, how.durable);
      return started.error();
    }
  }
  made.ended = std::exchange(state_->ended, {});
  return made;
}

std::vector<ended_save> checkpoint_run::wait() {
  while (!state_->flights.empty()) state_->end_oldest();
  if (state_->writer) state_->writer->wait();
  return std::exchange(state_->ended, {});
}

result<resumed_run> checkpoint_run::resume(communicator_ref comm) {
  SHARDMESH_TRY(state_->check_process());
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
  SHARDMESH_TRY(state_->check_process());
  const call_options call{.within = options.within, .cancel = options.cancel, .name = "run.resume"};
  resumed_run made;
  std::optional<std::int64_t> below;
  for (;;) {
    SHARDMESH_TRY(chosen_step chosen, state_->choose(comm, below, call));
    for (error& skipped : chosen.skipped) made.skipped.push_back(std::move(skipped));
    if (!chosen.step) break;
    const fs::path path = state_->path_of(*chosen.step);
    const auto skip = [&](const error& why) {
      error skipped = fail(why.code, "the step is skipped: " + to_string(why));
      made.skipped.push_back(std::move(skipped).with_file(path.string()));
      below = chosen.step;
    };
    auto objects = state_->resume_objects(*chosen.step, comm, call);
    if (!objects) {
      if (!is_damage(objects.error().code)) return std::move(objects).error();
      skip(objects.error());
      continue;
    }
    auto loaded = loader(path);
    agree_options told;
    if (!loaded) told.problem = &loaded.error();
    const std::vector<agreement_record> records = state_->record_of(*chosen.step);
    const auto agreed = agree(comm, records, told, call);
    if (loaded && agreed) {
      if (state_->writer) state_->writer->note_resume(*chosen.step);
      made.step = chosen.step;
      made.path = path;
      made.loaded = *std::move(loaded);
      made.rank_objects = std::move(objects->own);
      made.dropped = std::move(objects->dropped);
      return made;
    }
    // A failure of the communicator is no damage to the step.
    if (agreed || !is_damage(agreed.error().code)) return agreed ? loaded.error() : agreed.error();
    skip(agreed.error());
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
  return state_->writer ? state_->writer->take_notes() : std::vector<std::string>();
}

}  // namespace shardmesh
