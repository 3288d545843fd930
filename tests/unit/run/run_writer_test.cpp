// SPDX-License-Identifier: Apache-2.0
// Tests the writer of a run on its own, as a binding uses it whose ranks save the steps by other means.
#include <signal.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <filesystem>
#include <forked_child.hpp>
#include <fstream>
#include <functional>
#include <optional>
#include <scratch_folder.hpp>
#include <string>
#include <utility>
#include <vector>

#include "run_states.hpp"

using namespace shardmesh;
using namespace run_states;
namespace fs = std::filesystem;

namespace {

using numbers = std::vector<std::int64_t>;

// Saves a step of one rank as the writer prepares it. Returns the preparation.
step_preparation save_with(run_writer& writer, std::int64_t step, std::optional<double> metric = std::nullopt) {
  const step_preparation made = writer.begin_save(step, quick(metric)).value();
  on_ranks(1, [&](any_communicator& comm) -> result<void> {
    trainer state = trained(comm, step);
    rank_save_options how = quick().saving;
    how.overwrite = made.overwrite;
    how.previous = made.previous;
    const auto saved = save(made.path, state, comm, how);
    if (!saved) return saved.error();
    return {};
  });
  writer.end_save(step, true, false);
  return made;
}

}  // namespace

TEST_CASE("a writer chooses the folder and the previous step, and records the metric before the step appears") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  run_writer writer = run_writer::open(run, {.incremental = true}).value();
  const step_preparation first = save_with(writer, 1, 0.5);
  CHECK(first.path == run / "step-1");
  CHECK(first.previous.empty());
  CHECK_FALSE(first.overwrite);
  const step_preparation second = save_with(writer, 2, 0.25);
  CHECK(second.previous == run / "step-1");
  const std::vector<run_step> steps = list_steps(run).value();
  REQUIRE(steps.size() == 2);
  CHECK(steps[0].metric == 0.5);
  CHECK(steps[1].metric == 0.25);
  CHECK(writer.take_notes().empty());
}

TEST_CASE("a run that is closed is free, even if a forked child that inherited it lives on") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  std::optional<run_writer> writer = run_writer::open(run).value();
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(60);
    ::pause();
  }
  CHECK(run_writer::open(run).error().code == errc::destination_exists);
  writer.reset();
  const auto again = run_writer::open(run);
  ::kill(child, SIGKILL);
  static_cast<void>(exit_status_of(child));
  INFO((again ? "" : to_string(again.error())));
  CHECK(again);
}

TEST_CASE("a forked child that destroys its copy of a run does not unlock it for others, and cannot save with it") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  on_ranks(1, [&](any_communicator& comm) -> result<void> {
    auto opened = checkpoint_run::open(run, comm);
    if (!opened) return std::move(opened).error();
    const int status = status_of_child([&] {
      trainer state = trained(comm, 1);
      const auto saved = opened->save(1, state, comm, quick());
      const bool is_refused = !saved && saved.error().code == errc::invalid_argument &&
                              to_string(saved.error()).find("open the run in this process") != std::string::npos;
      const checkpoint_run taken = *std::move(opened);
      return is_refused ? 0 : 1;
    });
    if (status != 0) return expect(false, "the child saved");
    return expect(!run_writer::open(run), "the lock is gone");
  });
}

TEST_CASE("a writer prunes after each save by its rules, and on demand by others") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  run_writer writer = run_writer::open(run, {.keep = {.last = 3}}).value();
  for (std::int64_t step = 1; step <= 5; ++step) {
    save_with(writer, step);
    writer.wait();
  }
  CHECK(numbers_in(run) == numbers{3, 4, 5});
  const prune_plan plan = writer.plan_prune({.last = 1}).value();
  CHECK(numbers_in(run) == numbers{3, 4, 5});
  CHECK(writer.prune(plan).steps == 2);
  CHECK(numbers_in(run) == numbers{5});
}

TEST_CASE("the step to which a save in progress refers stays until the save ends") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  run_writer writer = run_writer::open(run, {.incremental = true}).value();
  save_with(writer, 1);
  const step_preparation begun = writer.begin_save(2).value();
  REQUIRE(begun.previous == run / "step-1");
  save_steps(scratch / "other", {3});
  fs::rename(scratch / "other" / "step-3", run / "step-3");  // it is now the newest good step, and refers to none
  CHECK(writer.plan_prune({.last = 1}).value().deleted.empty());
  writer.end_save(2, false);
  const prune_plan plan = writer.plan_prune({.last = 1}).value();
  REQUIRE(plan.deleted.size() == 1);
  CHECK(plan.deleted[0].step.step == 1);
}

TEST_CASE("a save that fails changes neither the metric of the step that is there nor the record of other steps") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  run_writer writer = run_writer::open(run).value();
  save_with(writer, 1, 0.5);
  const auto fail_to_save = [&](std::int64_t step, double metric, const std::function<void()>& meanwhile) {
    REQUIRE(writer.begin_save(step, quick(metric)));
    meanwhile();
    writer.end_save(step, false, false);
  };
  const auto metric_of_1 = [&] {
    const std::vector<run_step> steps = list_steps(run).value();
    return steps.size() == 1 ? steps[0].metric : std::nullopt;
  };
  fail_to_save(1, 9, [] {});
  CHECK(metric_of_1() == 0.5);
  fail_to_save(2, 3, [] {});
  std::string text;
  std::getline(std::ifstream(run / ".shardmesh_run.json"), text);
  CHECK(text.find("\"1\":") != std::string::npos);
  CHECK(text.find("\"2\":") == std::string::npos);
  // The commit of the step succeeded, and then the save failed.
  fail_to_save(1, 0.25, [&] {
    save_steps(scratch / "other", {1});
    fs::rename(run / "step-1", scratch / "replaced");
    fs::rename(scratch / "other" / "step-1", run / "step-1");
  });
  CHECK(metric_of_1() == 0.25);
  CHECK(writer.take_notes().empty());
}

TEST_CASE("a step that failed to load stays damaged for later writers, until it is loaded or saved again") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  const auto damaged = [&] {
    numbers found;
    const std::vector<run_step> steps = list_steps(run).value();
    for (const run_step& one : steps)
      if (one.is_damaged) found.push_back(one.step);
    return found;
  };
  const auto previous_of_next = [&](run_writer& writer) {
    const step_preparation made = writer.begin_save(9).value();
    writer.end_save(9, false, false);
    return made.previous;
  };
  std::optional<run_writer> writer(run_writer::open(run, {.incremental = true}).value());
  for (const std::int64_t step : {1, 2, 3}) save_with(*writer, step, 0.5);
  fs::remove(run / ".shardmesh_run.json");  // as if another program had saved the steps
  writer->note_resume(1);
  CHECK(damaged() == numbers{2, 3});
  CHECK(previous_of_next(*writer) == run / "step-1");
  CHECK(writer->plan_prune({.last = 1}).value().deleted.empty());
  writer.reset();
  writer.emplace(run_writer::open(run, {.incremental = true}).value());
  CHECK(previous_of_next(*writer) == run / "step-1");
  // The mark stays while the step is saved, and after the save has failed.
  CHECK(writer->begin_save(3).value().overwrite);
  CHECK(damaged() == numbers{2, 3});
  writer->end_save(3, false, false);
  CHECK(damaged() == numbers{2, 3});
  CHECK(save_with(*writer, 3).overwrite);
  CHECK(damaged() == numbers{2});
  CHECK(previous_of_next(*writer) == run / "step-3");
  writer->note_resume(2);  // the files of step 2 were restored, and a resume has loaded it
  CHECK(damaged() == numbers{3});
  CHECK(previous_of_next(*writer) == run / "step-2");
}

TEST_CASE("the record keeps the metrics of steps with other names") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  {
    run_writer writer = run_writer::open(run, {.names = step_names::checkpoint}).value();
    save_with(writer, 7, 0.25);
  }
  run_writer writer = run_writer::open(run).value();
  save_with(writer, 8, 0.5);
  CHECK(list_steps(run, step_names::checkpoint).value().at(0).metric == 0.25);
  CHECK(list_steps(run).value().at(0).metric == 0.5);
}

TEST_CASE("one writer at a time has the folder, and a negative step is refused") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  std::optional<run_writer> first(run_writer::open(run).value());
  const auto second = run_writer::open(run);
  REQUIRE_FALSE(second);
  CHECK(second.error().code == errc::destination_exists);
  const auto negative = first->begin_save(-1);
  REQUIRE_FALSE(negative);
  CHECK(negative.error().code == errc::invalid_argument);
  CHECK(negative.error().found == "-1");
  first.reset();
  CHECK(run_writer::open(run));
}
