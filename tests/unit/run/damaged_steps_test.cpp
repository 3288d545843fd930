// SPDX-License-Identifier: Apache-2.0
// Tests steps that are damaged: what finds them, and what resumes, prunes, and saves then do.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <scratch_folder.hpp>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "run_states.hpp"

import shardmesh.dcp;

using namespace shardmesh;
using namespace run_states;
namespace fs = std::filesystem;

namespace {

using numbers = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("a step that is half-written, shortened, or damaged is skipped, and the note names it and the cause") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {1, 2, 3, 4});
  fs::remove(run / "step-4" / ".metadata");                   // as PyTorch leaves a killed save
  shorten(run / "step-3" / "__1_0.distcp");                   // the end of a file is lost
  fs::create_directory(run / ".step-5.shardmesh-tmp-a-1-b");  // no step
  const latest_step latest = find_latest_step(run).value();
  REQUIRE(latest.step);
  CHECK(latest.step->step == 2);
  REQUIRE(latest.skipped.size() == 2);
  CHECK(latest.skipped[0].file == (run / "step-4").string());
  CHECK(latest.skipped[1].file == (run / "step-3").string());
  CHECK(to_string(latest.skipped[1]).find("__1_0.distcp") != std::string::npos);
  const std::vector<error> skipped = check_resumes(run, 4, 2);
  REQUIRE(skipped.size() == 2);
  CHECK(skipped == latest.skipped);
}

TEST_CASE("a step with a file that a link leads out of the step is not good, because no load follows the link") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {1, 2, 3});
  fs::rename(run / "step-2" / "__0_0.distcp", run / "step-2" / "moved");
  fs::create_symlink("moved", run / "step-2" / "__0_0.distcp");  // stays in the step
  fs::remove(run / "step-3" / "__0_0.distcp");
  fs::create_symlink("../step-1/__0_0.distcp", run / "step-3" / "__0_0.distcp");
  const latest_step latest = find_latest_step(run).value();
  REQUIRE(latest.step);
  CHECK(latest.step->step == 2);
  REQUIRE(latest.skipped.size() == 1);
  CHECK(latest.skipped[0].code == errc::unsafe_path);
  CHECK(check_resumes(run, 2, 2) == latest.skipped);
  CHECK(plan_prune(run, {.keep = {.last = 1}}).value().deleted.empty());
}

TEST_CASE("a step that another process prunes while it is loaded does not lead to older ones, but to the newest") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {1, 2, 3});
  const auto chosen_after = [&](std::int64_t failed) {
    return detail::find_step_to_resume(run, step_names::step, {}, failed).value().step;
  };
  CHECK(chosen_after(2)->step == 1);
  CHECK_FALSE(chosen_after(1));
  fs::remove_all(run / "step-1");
  CHECK(chosen_after(1)->step == 3);
  CHECK(chosen_after(3)->step == 2);
}

TEST_CASE("a check that reaches a limit ends the search for the newest step, which skips no step") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {1, 2});
  std::stop_source stop;
  stop.request_stop();
  for (const bool deep : {false, true}) {
    step_check_options late{.deep = deep}, cancelled{.deep = deep};
    late.within = std::chrono::seconds(0);
    cancelled.cancel = stop.get_token();
    CHECK(check_step(run / "step-2", late).problem->code == errc::deadline_exceeded);
    CHECK(check_step(run / "step-2", cancelled).problem->code == errc::cancelled);
    CHECK(find_latest_step(run, step_names::step, late).error().code == errc::deadline_exceeded);
    CHECK(find_latest_step(run, step_names::step, cancelled).error().code == errc::cancelled);
    late.within = std::chrono::hours(1);
    CHECK(find_latest_step(run, step_names::step, late).value().step->step == 2);
  }
}

TEST_CASE("a flipped bit is found by the deep check only, and a checked load falls back to the step before") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {1, 2});
  const fs::path file = run / "step-2" / "__0_0.distcp";
  flip_byte(file, offset_of(file, 205));  // an element of "w"
  CHECK(find_latest_step(run).value().step->step == 2);
  CHECK(find_latest_step(run, step_names::step, {.deep = true}).value().step->step == 1);
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    auto opened = checkpoint_run::open(run, comm);
    if (!opened) return std::move(opened).error();
    trainer state(comm.rank(), comm.size());
    const auto resumed = opened->resume(state, comm, {.check = true});
    if (!resumed) return resumed.error();
    if (auto same = expect(resumed->step == 1 && resumed->skipped.size() == 1, "no fall back"); !same) return same;
    return expect(state == trained(comm, 1), "other values");
  });
}

TEST_CASE("a step that a resume found damaged is kept, but counts as good for no prune, and a save replaces it") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {10, 20});
  flip_byte(run / "step-20" / "__0_0.distcp", offset_of(run / "step-20" / "__0_0.distcp", 2005));  // of "w"
  const checkpoint_run_options options{.keep = {.last = 1}};
  const auto resume_and_save = [&](std::int64_t from, std::int64_t to) {
    std::vector<std::string> notes;
    on_ranks(2, [&](any_communicator& comm) -> result<void> {
      auto opened = checkpoint_run::open(run, comm, options);
      if (!opened) return std::move(opened).error();
      trainer state(comm.rank(), comm.size());
      const auto resumed = opened->resume(state, comm, {.check = true});
      if (!resumed) return resumed.error();
      if (auto same = expect(resumed->step == from && state == trained(comm, from), "another step"); !same) return same;
      state = trained(comm, to);
      const auto saved = opened->save(to, state, comm, quick());
      if (!saved) return saved.error();
      opened->wait();
      if (comm.rank() == 0) notes = opened->take_notes();
      return {};
    });
    return notes;
  };
  CHECK(resume_and_save(10, 15).empty());
  CHECK(numbers_in(run) == numbers{15, 20});
  CHECK(list_steps(run).value()[1].is_damaged);
  const latest_step latest = find_latest_step(run).value();
  CHECK(latest.step->step == 15);
  REQUIRE(latest.skipped.size() == 1);
  CHECK(to_string(latest.skipped[0]).find("a resume found the step damaged") != std::string::npos);
  CHECK(find_latest_step(run, step_names::step, {.deep = true}).value().step->step == 15);
  // Another process knows it too.
  CHECK(prune_run(plan_prune(run, {.keep = {.last = 1}}).value()).value().steps == 0);
  const std::vector<std::string> notes = resume_and_save(15, 20);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].find("step-20: the damaged step is replaced: a resume could not load it") != std::string::npos);
  CHECK(numbers_in(run) == numbers{20});
  CHECK_FALSE(list_steps(run).value()[0].is_damaged);
  CHECK(check_step(run / "step-20", {.deep = true}).ok());
  CHECK(find_latest_step(run).value().step->step == 20);
}

TEST_CASE("no incremental step refers to a step that a resume found damaged") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {10, 20});
  flip_byte(run / "step-20" / "__0_0.distcp", offset_of(run / "step-20" / "__0_0.distcp", -5));  // of "frozen"
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    auto opened = checkpoint_run::open(run, comm, {.incremental = true});
    if (!opened) return std::move(opened).error();
    trainer state(comm.rank(), comm.size());
    const auto resumed = opened->resume(state, comm, {.check = true});
    if (!resumed) return resumed.error();
    for (const std::int64_t step : {15, 30, 40}) {
      state = trained(comm, step);
      const auto saved = opened->save(step, state, comm, quick());
      if (!saved) return saved.error();
    }
    return {};
  });
  for (const std::int64_t step : {15, 30, 40}) {
    const fs::path folder = run / folder_name(step, step_names::step);
    CHECK(dcp::references_of(folder).value() == std::vector<std::string>{"step-10"});
    CHECK(check_step(folder, {.deep = true}).ok());
  }
}
