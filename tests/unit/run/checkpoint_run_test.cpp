// SPDX-License-Identifier: Apache-2.0
// Tests the saves of a run and the return to its newest step. Damaged steps are in damaged_steps_test, and the prune is
// in prune_test.
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <scratch_folder.hpp>
#include <string>
#include <utility>
#include <vector>

#include "run_states.hpp"

import shardmesh.dcp;

using namespace shardmesh;
using namespace run_states;
namespace fs = std::filesystem;

namespace other_states {

// Half of the rows of a `trainer`.
struct model {
  std::vector<float> values = std::vector<float>(16);
};

inline result<local_state> local_view(model& mine) {
  const tensor_view memory{reinterpret_cast<std::byte*>(mine.values.data()), dtype::float32, {}, {4, 4}, {4, 1}};
  local_state part;
  part.tensors.push_back({{"w"}, {4, 4}, dtype::float32, {{{{0, 0}, {4, 4}}, memory}}});
  return part;
}

}  // namespace other_states

namespace {

using numbers = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("a run resumes from its newest step, on any number of ranks, under each naming convention") {
  for (const step_names names : {step_names::step, step_names::checkpoint, step_names::iteration}) {
    INFO(name(names));
    const scratch_folder scratch;
    const checkpoint_run_options options{.names = names};
    save_steps(scratch / "run", {5, 10, 20}, options);
    CHECK(numbers_in(scratch / "run", names) == numbers{5, 10, 20});
    for (const std::int32_t ranks : {1, 2, 4}) CHECK(check_resumes(scratch / "run", ranks, 20, options).empty());
    const fs::path tracker = scratch / "run" / tracker_file_name;
    CHECK(fs::exists(tracker) == (names == step_names::iteration));
    std::string text;
    std::ifstream(tracker) >> text;
    CHECK(text == (names == step_names::iteration ? "20" : ""));
  }
}

TEST_CASE("a run without steps resumes with none, and leaves the state as it was") {
  const scratch_folder scratch;
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    auto run = checkpoint_run::open(scratch / "new" / "run", comm);
    if (!run) return std::move(run).error();
    trainer state = trained(comm, 3);
    const auto resumed = run->resume(state, comm);
    if (!resumed) return resumed.error();
    if (auto none = expect(!resumed->step && resumed->skipped.empty(), "a step"); !none) return none;
    return expect(state == trained(comm, 3), "other values");
  });
}

TEST_CASE("a run whose folder has steps with other names does not resume as a new one") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {1}, {.names = step_names::checkpoint});
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    auto opened = checkpoint_run::open(run, comm);
    if (!opened) return std::move(opened).error();
    trainer state(comm.rank(), comm.size());
    const auto resumed = opened->resume(state, comm);
    const auto found = opened->resume(comm);
    if (resumed || found) return expect(false, "a new run");
    const std::string text = to_string(resumed.error());
    return expect(resumed.error().code == errc::invalid_argument && text == to_string(found.error()) &&
                      text.find("checkpoint-1") != std::string::npos,
                  text);
  });
  CHECK(check_resumes(run, 2, 1, {.names = step_names::checkpoint}).empty());
}

TEST_CASE("steps of which none is good are an error, so that a run does not begin again unnoticed") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {1, 2});
  for (const char* const step : {"step-1", "step-2"}) fs::remove(run / step / ".metadata");
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    auto opened = checkpoint_run::open(run, comm);
    if (!opened) return std::move(opened).error();
    trainer state(comm.rank(), comm.size());
    const auto resumed = opened->resume(state, comm);
    const auto found = opened->resume(comm);
    if (resumed || found) return expect(false, "a step");
    if (auto both = expect(found.error().problem_count() == 2, to_string(found.error())); !both) return both;
    return expect(resumed.error().problem_count() == 2, to_string(resumed.error()));
  });
}

TEST_CASE("a state that does not fit the newest step is an error, not a reason to load an older one") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {1, 2});
  on_ranks(1, [&](any_communicator& comm) -> result<void> {
    auto opened = checkpoint_run::open(run, comm);
    if (!opened) return std::move(opened).error();
    other_states::model state;
    const auto resumed = opened->resume(state, comm);
    if (resumed) return expect(false, "it was loaded");
    return expect(resumed.error().code == errc::shape_mismatch, to_string(resumed.error()));
  });
}

TEST_CASE("a second run of the folder is told about the first one, until that one ends") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  on_ranks(1, [&](any_communicator& comm) -> result<void> {
    auto first = checkpoint_run::open(run, comm);
    if (!first) return std::move(first).error();
    const auto second = checkpoint_run::open(run, comm);
    if (second) return expect(false, "two runs");
    const std::string text = to_string(second.error());
    if (second.error().code != errc::destination_exists) return expect(false, text);
    if (auto named = expect(text.find("process " + std::to_string(::getpid()) + " on host") != std::string::npos, text);
        !named)
      return named;
    const auto pruned = prune_run(plan_prune(run).value());
    return expect(!pruned && pruned.error().code == errc::destination_exists, "a prune of another process");
  });
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    const auto again = checkpoint_run::open(run, comm);
    if (!again) return again.error();
    return {};
  });
}

TEST_CASE("a good step is not replaced without overwrite, and a damaged one is, with a note") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {1, 2});
  shorten(run / "step-2" / "__0_0.distcp");
  std::vector<std::string> notes;
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    auto opened = checkpoint_run::open(run, comm);
    if (!opened) return std::move(opened).error();
    trainer state = trained(comm, 2);
    const auto refused = opened->save(1, state, comm, quick());
    if (refused || refused.error().code != errc::destination_exists) return expect(false, "step 1 is replaced");
    const auto saved = opened->save(2, state, comm, quick());
    if (!saved) return saved.error();
    if (comm.rank() == 0) notes = opened->take_notes();
    return {};
  });
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].find("step-2: the damaged step is replaced") != std::string::npos);
  CHECK(check_resumes(run, 2, 2).empty());
}

TEST_CASE("incremental steps refer to the newest good one, and a step to which another refers is not replaced") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  const checkpoint_run_options options{.incremental = true};
  save_steps(run, {1, 2, 3}, options);
  CHECK(dcp::references_of(run / "step-1").value().empty());
  CHECK(dcp::references_of(run / "step-2").value() == std::vector<std::string>{"step-1"});
  CHECK(dcp::references_of(run / "step-3").value() == std::vector<std::string>{"step-1"});  // references are flat
  CHECK(check_resumes(run, 4, 3, options).empty());
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    auto opened = checkpoint_run::open(run, comm, options);
    if (!opened) return std::move(opened).error();
    trainer state = trained(comm, 1);
    run_save_options replacing = quick();
    replacing.saving.overwrite = true;
    const auto refused = opened->save(1, state, comm, replacing);
    if (refused) return expect(false, "it is replaced");
    const std::string text = to_string(refused.error());
    return expect(refused.error().code == errc::invalid_argument && text.find("step-2") != std::string::npos, text);
  });
}

TEST_CASE("a step is not replaced while a folder with a user's name refers to it, or if it is a link") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run", other = scratch / "other";
  save_steps(run, {1, 2}, {.incremental = true});
  save_steps(other, {3});
  fs::rename(run / "step-2", run / "best");
  fs::create_directory_symlink(fs::absolute(other / "step-3"), run / "step-3");
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    auto opened = checkpoint_run::open(run, comm);
    if (!opened) return std::move(opened).error();
    trainer state = trained(comm, 5);
    run_save_options replacing = quick();
    replacing.saving.overwrite = true;
    const auto referred = opened->save(1, state, comm, replacing);
    if (referred) return expect(false, "step 1 is replaced");
    std::string text = to_string(referred.error());
    if (auto refused = expect(referred.error().code == errc::invalid_argument && text.find("best") != text.npos, text);
        !refused)
      return refused;
    const auto linked = opened->save(3, state, comm, replacing);
    if (linked) return expect(false, "step 3 is replaced");
    text = to_string(linked.error());
    return expect(linked.error().code == errc::destination_exists && text.find("remove the link") != text.npos, text);
  });
  CHECK(check_step(run / "best", {.deep = true}).ok());
  CHECK(check_resumes(other, 2, 3).empty());
}

TEST_CASE("an incremental save after a step whose record of checksums is damaged is whole, with a note") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {1});
  flip_byte(run / "step-1" / ".shardmesh_checksums", 40);
  std::vector<std::string> notes;
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    auto opened = checkpoint_run::open(run, comm, {.incremental = true});
    if (!opened) return std::move(opened).error();
    trainer state = trained(comm, 2);
    const auto saved = opened->save(2, state, comm, quick());
    if (!saved) return saved.error();
    if (comm.rank() == 0) notes = opened->take_notes();
    return {};
  });
  CHECK(dcp::references_of(run / "step-2").value().empty());
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].starts_with("step 2 is saved whole: "));
}

TEST_CASE("ranks that save different steps, and negative steps, are errors on every rank") {
  const scratch_folder scratch;
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    auto run = checkpoint_run::open(scratch / "run", comm);
    if (!run) return std::move(run).error();
    trainer state = trained(comm, 1);
    const auto mixed = run->save(comm.rank(), state, comm, quick());
    if (mixed || mixed.error().code != errc::disagreement) return expect(false, text_of(mixed));
    const auto negative = run->save(-1, state, comm, quick());
    return expect(!negative && negative.error().code == errc::invalid_argument, text_of(negative));
  });
  CHECK(numbers_in(scratch / "run").empty());
}

TEST_CASE("a step is saved as DCP or as a Hugging Face folder, and no other format is accepted") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    auto opened = checkpoint_run::open(run, comm);
    if (!opened) return std::move(opened).error();
    trainer state = trained(comm, 1);
    run_save_options how = quick();
    how.saving.format = target_format::hf;
    const auto saved = opened->save(1, state, comm, how);
    if (!saved) return saved.error();
    how.saving.format = target_format::safetensors;
    const auto refused = opened->save(2, state, comm, how);
    return expect(!refused && refused.error().code == errc::unsupported, text_of(refused));
  });
  CHECK(numbers_in(run) == numbers{1});
  CHECK(find_latest_step(run).value().step->step == 1);
  const auto files = names_in(run / "step-1", ".safetensors");
  REQUIRE_FALSE(files.empty());
  for (const std::string& file : files) fs::resize_file(run / "step-1" / file, 20);
  CHECK_FALSE(find_latest_step(run).value().step);
}

TEST_CASE("background saves wait for a free place, and every outcome is returned once") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    auto opened = checkpoint_run::open(run, comm, {.in_flight = 2, .incremental = true});
    if (!opened) return std::move(opened).error();
    numbers ended;
    const auto collect = [&](const std::vector<ended_save>& list) -> result<void> {
      for (const ended_save& one : list) {
        if (!one.outcome) return one.outcome.error();
        ended.push_back(one.step);
      }
      return {};
    };
    for (std::int64_t step = 1; step <= 6; ++step) {
      trainer state = trained(comm, step);
      const auto started = opened->start_save(step, state, comm, quick());
      if (!started) return started.error();
      if (started->is_skipped) return expect(false, "a step is skipped");
      if (auto collected = collect(started->ended); !collected) return collected;
    }
    if (auto collected = collect(opened->wait()); !collected) return collected;
    return expect(ended == numbers{1, 2, 3, 4, 5, 6}, "other saves have ended");
  });
  CHECK(numbers_in(run) == numbers{1, 2, 3, 4, 5, 6});
  CHECK(check_resumes(run, 2, 6).empty());
}

TEST_CASE("a background save is skipped while the allowed one runs, on every rank alike") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  std::vector<std::vector<bool>> skipped(2);
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    auto opened = checkpoint_run::open(run, comm, {.when_full = full_flight::skip});
    if (!opened) return std::move(opened).error();
    for (std::int64_t step = 1; step <= 5; ++step) {
      trainer state = trained(comm, step);
      const auto started = opened->start_save(step, state, comm, quick());
      if (!started) return started.error();
      skipped[static_cast<std::size_t>(comm.rank())].push_back(started->is_skipped);
    }
    for (const ended_save& one : opened->wait())
      if (!one.outcome) return one.outcome.error();
    return {};
  });
  CHECK(skipped[0] == skipped[1]);
  numbers saved;
  for (std::size_t i = 0; i < skipped[0].size(); ++i)
    if (!skipped[0][i]) saved.push_back(static_cast<std::int64_t>(i) + 1);
  CHECK(numbers_in(run) == saved);
  CHECK_FALSE(skipped[0][0]);
}

TEST_CASE("a metric that is not finite is noted, and the step has none") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {1, 2}, {}, {{1, 0.25}, {2, std::numeric_limits<double>::quiet_NaN()}});
  const std::vector<run_step> steps = list_steps(run).value();
  REQUIRE(steps.size() == 2);
  CHECK(steps[0].metric == 0.25);
  CHECK(steps[1].metric == std::nullopt);
}

TEST_CASE("a damaged record of metrics stops neither a save nor the return, and its error names the remedy") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_steps(run, {1});
  for (const std::string text :
       {"", "[]", "{", "{\"version\":2,\"steps\":{}}", "{\"version\":1}",
        "{\"version\":1,\"steps\":{\"x\":{\"saved\":1}}}", "{\"version\":1,\"steps\":{\"1\":{\"saved\":-1}}}",
        "{\"version\":1,\"steps\":{\"1\":{\"saved\":1,\"metric\":\"low\"}}}"}) {
    INFO(text);
    std::ofstream(run / ".shardmesh_run.json") << text;
    const auto listed = list_steps(run);
    REQUIRE_FALSE(listed);
    CHECK(listed.error().code == errc::bad_format);
    CHECK(listed.error().hint.find("remove the file") != std::string::npos);
    CHECK_FALSE(plan_prune(run));
    CHECK(find_latest_step(run).value().step->step == 1);
  }
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    auto opened = checkpoint_run::open(run, comm);
    if (!opened) return std::move(opened).error();
    trainer state = trained(comm, 2);
    const auto saved = opened->save(2, state, comm, quick());
    if (!saved) return saved.error();
    return expect(comm.rank() != 0 || opened->take_notes().size() == 1, "no note");
  });
}

TEST_CASE("a run over a URL, without a place for saves, or with a wrong rule is refused on every rank") {
  const scratch_folder scratch;
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    const auto url = checkpoint_run::open("s3://bucket/run", comm);
    if (url || url.error().code != errc::unsupported) return expect(false, "a URL");
    const auto none = checkpoint_run::open(scratch / "run", comm, {.in_flight = 0});
    if (none || none.error().code != errc::invalid_argument) return expect(false, "no save in flight");
    const auto rule = checkpoint_run::open(scratch / "run", comm, {.keep = {.last = -1}});
    return expect(!rule && rule.error().code == errc::invalid_argument, "a negative rule");
  });
}
