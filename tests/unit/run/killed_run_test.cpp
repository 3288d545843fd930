// SPDX-License-Identifier: Apache-2.0
// A run is killed at random moments, again and again, while it saves, prunes, and resumes. It can always resume, from
// no older step than the last one that it reported, and a prune leaves nothing behind.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstdlib>
#include <dice.hpp>
#include <filesystem>
#include <forked_child.hpp>
#include <optional>
#include <random_seed.hpp>
#include <scratch_folder.hpp>
#include <string>
#include <utility>
#include <vector>

#include "run_states.hpp"

using namespace shardmesh;
using namespace run_states;
namespace fs = std::filesystem;

namespace {

// A number that is larger than any step: the child's state was wrong, or a call failed.
constexpr std::int64_t failed = std::int64_t{1} << 60;

void report(int to, std::int64_t step) {
  static_cast<void>(!::write(to, &step, sizeof step));
}

// Trains for ever. Rank 0 reports each step that was saved.
result<void> train(const fs::path& folder, const checkpoint_run_options& options, int to, any_communicator& comm) {
  auto run = checkpoint_run::open(folder, comm, options);
  if (!run) return std::move(run).error();
  trainer state(comm.rank(), comm.size());
  const auto resumed = run->resume(state, comm);
  if (!resumed) return resumed.error();
  if (resumed->step && state != trained(comm, *resumed->step)) return expect(false, "other values");
  for (std::int64_t step = resumed->step.value_or(0) + 1;; ++step) {
    state.train(step);
    std::vector<ended_save> ended;
    if (step % 3 == 0) {
      const auto saved = run->save(step, state, comm, quick(static_cast<double>(step % 5)));
      if (!saved) return saved.error();
      ended.push_back({step, *saved});
    } else {
      auto started = run->start_save(step, state, comm, quick());
      if (!started) return std::move(started).error();
      ended = std::move(started->ended);
    }
    for (const ended_save& one : ended) {
      if (!one.outcome) return one.outcome.error();
      if (comm.rank() == 0) report(to, one.step);
    }
  }
}

// Runs the training in a child, kills it after at most `most_ms`, and returns the last step that it reported.
std::optional<std::int64_t> train_and_kill(const fs::path& folder, const checkpoint_run_options& options,
                                           std::int32_t ranks, int most_ms) {
  int ends[2] = {-1, -1};
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::close(ends[0]);
    ::alarm(60);
    const auto ran = run_ranks(ranks, [&](any_communicator& comm) { return train(folder, options, ends[1], comm); });
    static_cast<void>(!::write(STDERR_FILENO, "killed_run_test: the training ended\n", 36));
    report(ends[1], ran ? failed : failed + 1);
    std::_Exit(1);
  }
  ::close(ends[1]);
  ::pollfd none{-1, 0, 0};
  ::poll(&none, 1, most_ms);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  std::optional<std::int64_t> last;
  for (std::int64_t step = 0; ::read(ends[0], &step, sizeof step) == static_cast<::ssize_t>(sizeof step);)
    last = std::max(last.value_or(0), step);
  ::close(ends[0]);
  return last;
}

}  // namespace

TEST_CASE("a run that is killed at random moments resumes from no older step than it reported, and prunes clean") {
  const std::uint64_t seed = random_seed::seed();
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  const checkpoint_run_options options{.in_flight = 2, .incremental = true, .keep = {.last = 2, .best = 1}};
  dice random(seed);
  std::int64_t last = 0;
  for (std::uint64_t round = 0; round < random_seed::rounds(15); ++round) {
    INFO("SHARDMESH_SEED=" << seed << ", round " << round);
    const std::int32_t ranks = random.pick({1, 2, 4});
    const auto reported = train_and_kill(run, options, ranks, static_cast<int>(1 + random.below(120)));
    last = std::max(last, reported.value_or(0));
    REQUIRE(last < failed);
    if (!fs::exists(run)) continue;  // killed before it began
    const latest_step latest = find_latest_step(run, step_names::step, {.deep = true}).value();
    for (const error& skipped : latest.skipped) FAIL_CHECK(to_string(skipped));
    REQUIRE((latest.step ? latest.step->step : 0) >= last);
    const prune_plan plan = plan_prune(run, {.keep = options.keep}).value();
    for (const std::string& note : plan.notes) FAIL_CHECK(note);
    const prune_report pruned = prune_run(plan).value();
    for (const error& problem : pruned.problems) FAIL_CHECK(to_string(problem));
    for (const std::string& name : names_in(run, "shardmesh-tmp")) FAIL_CHECK(name);
    const auto listed = list_steps(run).value();
    for (const run_step& step : listed) {
      const step_check checked = check_step(step.path, {.deep = true});
      INFO(step.path << ": " << (checked.problem ? to_string(*checked.problem) : ""));
      CHECK(checked.ok());
    }
    CHECK(find_latest_step(run).value().step.has_value() == latest.step.has_value());
    if (latest.step) CHECK(find_latest_step(run).value().step->step == latest.step->step);
  }
}
