// SPDX-License-Identifier: Apache-2.0
// Tests which steps a prune deletes, and why the others stay.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdint>
#include <dice.hpp>
#include <filesystem>
#include <map>
#include <random_seed.hpp>
#include <scratch_folder.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "run_states.hpp"

using namespace shardmesh;
using namespace run_states;
namespace fs = std::filesystem;

namespace {

using numbers = std::vector<std::int64_t>;
using reasons = std::vector<std::string>;

std::map<std::int64_t, reasons> reasons_in(const prune_plan& plan) {
  std::map<std::int64_t, reasons> made;
  for (const kept_step& one : plan.kept) made.emplace(one.step.step, one.reasons);
  return made;
}

numbers deleted_in(const prune_plan& plan) {
  numbers made;
  for (const deleted_step& one : plan.deleted) made.push_back(one.step.step);
  return made;
}

// Prunes, and checks that the report agrees with the plan and with the folder.
void check_pruned(const fs::path& run, const prune_options& options, const numbers& left) {
  const prune_plan plan = plan_prune(run, options).value();
  const prune_report report = prune_run(plan).value();
  for (const error& problem : report.problems) FAIL_CHECK(to_string(problem));
  CHECK(report.steps == static_cast<std::int64_t>(plan.deleted.size()));
  CHECK(report.bytes == plan.deleted_bytes());
  CHECK(numbers_in(run, options.names) == left);
  CHECK(names_in(run, "shardmesh-tmp").empty());
  CHECK(plan_prune(run, options).value().deleted.empty());
}

}  // namespace

TEST_CASE("a prune keeps the union of the rules, and its plan names every reason and size") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {10, 20, 30, 40, 50, 60}, {}, {{10, 0.5}, {20, 0.1}, {30, 0.4}, {60, 0.9}});
  REQUIRE(pin_step(run, 10));
  const prune_options options{.keep = {.last = 2, .every = 30, .best = 1}};
  const prune_plan plan = plan_prune(run, options).value();
  const std::map<std::int64_t, reasons> expected{{10, {"pinned"}},
                                                 {20, {"best 1"}},
                                                 {30, {"every 30"}},
                                                 {50, {"last 2"}},
                                                 {60, {"last 2", "every 30", "newest good step"}}};
  CHECK(reasons_in(plan) == expected);
  CHECK(deleted_in(plan) == numbers{40});
  std::int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(run / "step-40"))
    bytes += static_cast<std::int64_t>(entry.file_size());
  CHECK(plan.deleted_bytes() == bytes);
  check_pruned(run, options, {10, 20, 30, 50, 60});
  REQUIRE(unpin_step(run, 10));
  check_pruned(run, options, {20, 30, 50, 60});
}

TEST_CASE("a step that is a link is checked where it leads, and is never deleted") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run", archive = scratch / "archive";
  save_steps(archive, {1, 2}, {.incremental = true});
  save_steps(run, {3});
  fs::create_directory_symlink(archive / "step-2", run / "step-2");
  const step_check checked = check_step(run / "step-2");
  if (checked.problem) FAIL_CHECK(to_string(*checked.problem));
  CHECK(checked.references == std::vector<std::string>{"step-1"});
  const prune_options options{.keep = {.last = 1}};
  const std::map<std::int64_t, reasons> expected{{2, {"a symbolic link"}}, {3, {"last 1", "newest good step"}}};
  CHECK(reasons_in(plan_prune(run, options).value()) == expected);
  check_pruned(run, options, {2, 3});
  CHECK(numbers_in(archive) == numbers{1, 2});
}

TEST_CASE("a step stays while a link in the run leads to it, also through another link or to one of its files") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {1, 2, 3, 5});
  fs::create_directory_symlink("step-1", run / "best");
  fs::create_directory_symlink(fs::absolute(run / "step-2"), run / "step-4");
  fs::create_symlink("step-3/.metadata", run / "newest.metadata");
  fs::create_symlink("step-9", run / "broken");
  const prune_options options{.keep = {.last = 1}};
  const std::map<std::int64_t, reasons> expected{{1, {"best leads to it"}},
                                                 {2, {"step-4 leads to it"}},
                                                 {3, {"newest.metadata leads to it"}},
                                                 {4, {"a symbolic link"}},
                                                 {5, {"last 1", "newest good step"}}};
  CHECK(reasons_in(plan_prune(run, options).value()) == expected);
  check_pruned(run, options, {1, 2, 3, 4, 5});
  fs::create_directory_symlink("best", run / "again");
  fs::remove(run / "newest.metadata");
  check_pruned(run, options, {1, 2, 4, 5});
  for (const char* const link : {"again", "best", "step-4"}) fs::remove(run / link);
  check_pruned(run, options, {5});
}

TEST_CASE("a step stays while a link in another step or in a folder leads to it, also through a third step") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {1, 2, 3, 4, 5});
  const char* const linked = "__9_9.distcp";  // a name of DCP, so that a step with it may be deleted
  fs::create_symlink("../step-4/__9_9.distcp", run / "step-5" / linked);
  fs::create_symlink("../step-1/__0_0.distcp", run / "step-4" / linked);
  fs::create_symlink("__0_0.distcp", run / "step-3" / linked);  // needs no other step
  fs::create_directory(run / "mine");
  fs::create_directory_symlink("../step-2", run / "mine" / "best");
  const prune_options options{.keep = {.last = 1}};
  const std::map<std::int64_t, reasons> expected{{1, {"step-5 refers to it", "step-4 refers to it"}},
                                                 {2, {"a link in mine leads to it"}},
                                                 {4, {"step-5 refers to it"}},
                                                 {5, {"last 1", "newest good step"}}};
  CHECK(reasons_in(plan_prune(run, options).value()) == expected);
  check_pruned(run, options, {1, 2, 4, 5});
  CHECK(fs::exists(run / "step-5" / linked));
  fs::remove(run / "step-5" / linked);
  fs::remove(run / "mine" / "best");
  check_pruned(run, options, {5});
}

TEST_CASE("the step that Megatron's tracker file names stays, since Megatron resumes from it") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  const checkpoint_run_options as_megatron{.names = step_names::iteration};
  save_steps(run, {10, 20, 30}, as_megatron);
  save_steps(run, {5}, as_megatron);  // saved last
  const prune_options options{.names = step_names::iteration, .keep = {.last = 1}};
  const std::string reason = "latest_checkpointed_iteration.txt names it";
  const auto kept_with = [&](const std::string& text) {
    std::ofstream(run / tracker_file_name) << text;
    return reasons_in(plan_prune(run, options).value());
  };
  const std::map<std::int64_t, reasons> newest{{30, {"last 1", "newest good step"}}};
  CHECK(kept_with(" 0000020\r\n") == std::map<std::int64_t, reasons>{{20, {reason}}, *newest.begin()});
  for (const char* const text : {"", "\n", "release\n", "40\n", "-5", "5 10", "99999999999999999999", "0x5"})
    CHECK(kept_with(text) == newest);
  CHECK(kept_with(std::string(5000, ' ') + "5") == newest);
  CHECK(kept_with("5\n") == std::map<std::int64_t, reasons>{{5, {reason}}, *newest.begin()});
  check_pruned(run, options, {5, 30});
}

TEST_CASE("without a rule, a prune deletes leftovers only") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {1, 2});
  const fs::path leftover = run / ".step-3.shardmesh-tmp-00000000-1-00000000";
  fs::create_directory(leftover);
  std::ofstream(leftover / "__0_0.distcp") << "half";
  const prune_plan plan = plan_prune(run).value();
  CHECK(deleted_in(plan).empty());
  // A leftover of another boot of this machine is judged by the file system: a shared one keeps it.
  if (plan.leftovers.empty())
    CHECK(find_leftovers(run).value().size() == 1);
  else
    check_pruned(run, {}, {1, 2});
  CHECK(numbers_in(run) == numbers{1, 2});
}

TEST_CASE("the newest good step stays, whatever the rules say, and a damaged step is not deleted") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {1, 2, 3}, {}, {{1, 0.1}, {2, 0.2}, {3, 0.3}});
  shorten(run / "step-3" / "__0_0.distcp");
  const prune_options options{.keep = {.best = 1}};
  const prune_plan plan = plan_prune(run, options).value();
  const std::map<std::int64_t, reasons> expected{{1, {"best 1"}}, {2, {"newest good step"}}, {3, {"fails the check"}}};
  CHECK(reasons_in(plan) == expected);
  REQUIRE(plan.kept.size() == 3);
  CHECK(plan.kept[2].problem);
  check_pruned(run, options, {1, 2, 3});
}

TEST_CASE("a step stays while a kept step, another folder, or a save in progress refers to it") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {1, 2}, {.incremental = true});
  save_steps(run, {3}, {});
  save_steps(run, {4, 5}, {.incremental = true});  // they refer to step 3
  const prune_options options{.keep = {.last = 1}};
  CHECK(reasons_in(plan_prune(run, options).value()) ==
        std::map<std::int64_t, reasons>{{3, {"step-5 refers to it"}}, {5, {"last 1", "newest good step"}}});
  fs::rename(run / "step-2", run / "best");  // a user's name
  CHECK(reasons_in(plan_prune(run, options).value()) ==
        std::map<std::int64_t, reasons>{
            {1, {"best refers to it"}}, {3, {"step-5 refers to it"}}, {5, {"last 1", "newest good step"}}});
  check_pruned(run, options, {1, 3, 5});
  fs::remove_all(run / "best");
  CHECK(deleted_in(plan_prune(run, {.keep = {.last = 1}, .in_use = {"step-1"}}).value()).empty());
  check_pruned(run, options, {3, 5});
  const auto listed = list_steps(run).value();
  for (const run_step& step : listed) {
    const step_check checked = check_step(step.path, {.deep = true});
    INFO(step.path);
    CHECK(checked.ok());
  }
}

TEST_CASE("nothing is deleted while a description cannot be read, and the note names the folder") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {1, 2, 3});
  std::ofstream(run / "step-2" / ".metadata") << "no pickle";
  const prune_plan plan = plan_prune(run, {.keep = {.last = 1}}).value();
  CHECK(deleted_in(plan).empty());
  REQUIRE(plan.notes.size() == 1);
  CHECK(plan.notes[0].find("step-2") != std::string::npos);
}

TEST_CASE("a folder that has lost its description keeps the steps that its record of checksums names") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {1, 2, 3}, {.incremental = true});
  save_steps(run, {4});
  fs::remove(run / "step-3" / ".metadata");
  const prune_options options{.keep = {.last = 1}};
  const std::map<std::int64_t, reasons> expected{
      {1, {"step-3 refers to it"}}, {3, {"fails the check"}}, {4, {"last 1", "newest good step"}}};
  CHECK(reasons_in(plan_prune(run, options).value()) == expected);
  check_pruned(run, options, {1, 3, 4});
  fs::rename(run / "step-3", run / "lost");
  CHECK(reasons_in(plan_prune(run, options).value()).at(1) == reasons{"lost refers to it"});
  check_pruned(run, options, {1, 4});
  fs::remove_all(run / "lost");
  check_pruned(run, options, {4});
}

TEST_CASE("a step folder with a user's file stays, and the problem names the file") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {1, 2, 3});
  std::ofstream(run / "step-1" / "notes.txt") << "keep me";
  const prune_report report = prune_run(plan_prune(run, {.keep = {.last = 1}}).value()).value();
  REQUIRE(report.problems.size() == 1);
  CHECK(report.problems[0].code == errc::destination_exists);
  CHECK(to_string(report.problems[0]).find("notes.txt") != std::string::npos);
  CHECK(report.steps == 1);
  CHECK(numbers_in(run) == numbers{1, 3});
  CHECK(check_step(run / "step-1").ok());
}

TEST_CASE("a step that was pinned after the plan was made is kept") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {1, 2, 3});
  const prune_plan plan = plan_prune(run, {.keep = {.last = 1}}).value();
  REQUIRE(pin_step(run, 1));
  CHECK(prune_run(plan).value().steps == 1);
  CHECK(numbers_in(run) == numbers{1, 3});
  const auto missing = pin_step(run, 7);
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code == errc::invalid_argument);
}

TEST_CASE("a plan that is carried out later deletes no step that a newer one needs, nor the newest good one") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {1, 2, 3});
  const prune_plan plan = plan_prune(run, {.keep = {.last = 1}}).value();
  CHECK(deleted_in(plan) == numbers{1, 2});
  shorten(run / "step-3" / "__0_0.distcp");
  save_steps(run, {4}, {.incremental = true});  // it refers to step 2
  const prune_report report = prune_run(plan).value();
  CHECK(report.problems.empty());
  CHECK(report.steps == 1);
  CHECK(numbers_in(run) == numbers{2, 3, 4});
  CHECK(check_step(run / "step-4", {.deep = true}).ok());
  fs::remove_all(run / "step-4");
  CHECK(prune_run(plan).value().steps == 0);
  CHECK(numbers_in(run) == numbers{2, 3});
}

TEST_CASE("a step that stays after all keeps the steps to which it refers") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {1, 2, 3}, {.incremental = true});  // 2 and 3 refer to 1
  save_steps(run, {4}, {});
  const prune_plan plan = plan_prune(run, {.keep = {.last = 1}}).value();
  REQUIRE(deleted_in(plan) == numbers{1, 2, 3});
  const auto check_left = [&](const numbers& left) {
    CHECK(numbers_in(run) == left);
    for (const std::int64_t step : left) CHECK(check_step(run / ("step-" + std::to_string(step)), {.deep = true}).ok());
  };
  std::ofstream(run / "step-3" / "notes.txt") << "keep me";
  REQUIRE(pin_step(run, 2));
  const prune_report none = prune_run(plan).value();
  CHECK((none.steps == 0 && none.bytes == 0 && none.problems.size() == 1));
  check_left({1, 2, 3, 4});
  fs::remove(run / "step-3" / "notes.txt");
  CHECK(prune_run(plan).value().steps == 1);
  check_left({1, 2, 4});
  REQUIRE(unpin_step(run, 2));
  check_pruned(run, {.keep = {.last = 1}}, {4});
}

TEST_CASE("a prune that is killed leaves no step that refers to a deleted one") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  numbers all;
  for (std::int64_t step = 1; step <= 20; ++step) all.push_back(step);
  save_steps(run, all, {.incremental = true});  // all refer to 1
  save_steps(run, {21}, {});
  const prune_plan plan = plan_prune(run, {.keep = {.last = 1}}).value();
  REQUIRE(deleted_in(plan) == all);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    static_cast<void>(prune_run(plan));
    ::pause();
  }
  const numbers before = numbers_in(run);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (numbers_in(run) == before && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const std::vector<run_step> left = list_steps(run).value();
  for (const run_step& step : left) {
    INFO(step.path);
    CHECK(check_step(step.path).ok());
  }
  check_pruned(run, {.keep = {.last = 1}}, {21});
}

TEST_CASE("a run with rules prunes itself after each save") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {1, 2, 3, 4}, {.incremental = true, .keep = {.last = 2}});
  CHECK(numbers_in(run) == numbers{1, 3, 4});  // the later ones refer to step 1
}

TEST_CASE("random saves, flattenings, and prunes never break a step that stays, nor delete the newest one") {
  const std::uint64_t seed = random_seed::seed();
  for (std::uint64_t round = 0; round < random_seed::rounds(6); ++round) {
    INFO("SHARDMESH_SEED=" << seed << ", round " << round);
    dice random(seed + round);
    const scratch_folder scratch;
    const fs::path run = scratch / "run";
    std::int64_t step = 0;
    for (std::int64_t turn = 0; turn < 6; ++turn) {
      numbers next;
      for (std::int64_t left = 1 + random.below(3); left > 0; --left) next.push_back(step += 1 + random.below(4));
      save_steps(run, next, {.incremental = !random.one_in(3)}, {{step, static_cast<double>(random.below(4))}});
      if (random.one_in(4)) REQUIRE(pin_step(run, step));
      if (random.one_in(3)) REQUIRE(flatten_step(run, step));
      const keep_rules keep{.last = random.below(3), .every = random.below(5), .best = random.below(2)};
      const prune_plan plan = plan_prune(run, {.keep = keep}).value();
      CHECK(prune_run(plan).value().problems.empty());
      const std::vector<run_step> steps = list_steps(run).value();
      REQUIRE(steps.size() == plan.kept.size());
      for (std::size_t i = 0; i < steps.size(); ++i) {
        INFO(steps[i].path);
        CHECK(steps[i].step == plan.kept[i].step.step);
        CHECK(check_step(steps[i].path, {.deep = true}).ok());
      }
      CHECK(steps.back().step == step);
    }
  }
}
