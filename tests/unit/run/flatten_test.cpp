// SPDX-License-Identifier: Apache-2.0
// Tests that a flattened step stands alone, and that a flattening which fails changes nothing.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random_seed.hpp>
#include <scratch_folder.hpp>
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
using names = std::vector<std::string>;

// Steps 1, 2, and 3 with the states of 1, 2, and 2: step 3 refers to step 1 for "frozen", and to step 2 for "w".
void save_three(const fs::path& run) {
  const checkpoint_run_options options{.incremental = true};
  save_steps(run, {1, 2}, options);
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    auto opened = checkpoint_run::open(run, comm, options);
    if (!opened) return std::move(opened).error();
    trainer state = trained(comm, 2);
    const auto saved = opened->save(3, state, comm, quick());
    if (!saved) return saved.error();
    return {};
  });
}

// Loads a step on four ranks, and checks the state.
void check_state(const fs::path& step, std::int64_t expected) {
  on_ranks(4, [&](any_communicator& comm) -> result<void> {
    trainer state(comm.rank(), comm.size());
    const auto loaded = load(step, state, comm);
    if (!loaded) return loaded.error();
    return expect(state == trained(comm, expected), "other values");
  });
}

std::string content_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// The contents of all files of a step, by name.
std::map<std::string, std::string> contents_of(const fs::path& step) {
  std::map<std::string, std::string> made;
  for (const std::string& name : names_in(step)) made.emplace(name, content_of(step / name));
  return made;
}

// Checks that the flattening fails with this code and text, and leaves the run as it was.
void check_refused(const fs::path& run, std::int64_t step, errc code, const std::string& text) {
  const fs::path folder = run / folder_name(step, step_names::step);
  const auto before = fs::exists(folder) ? contents_of(folder) : std::map<std::string, std::string>();
  const auto flattened = flatten_step(run, step);
  REQUIRE_FALSE(flattened);
  INFO(to_string(flattened.error()));
  CHECK(flattened.error().code == code);
  CHECK(to_string(flattened.error()).find(text) != std::string::npos);
  CHECK((fs::exists(folder) ? contents_of(folder) : std::map<std::string, std::string>()) == before);
  CHECK(names_in(run, "shardmesh-tmp").empty());
}

}  // namespace

TEST_CASE("a flattened step needs no other step, which a prune then deletes") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_three(run);
  REQUIRE(dcp::references_of(run / "step-3").value() == names{"step-1", "step-2"});
  const flatten_report report = flatten_step(run, 3).value();
  CHECK(report.references == names{"step-1", "step-2"});
  CHECK(report.copied_bytes > 2 * rows * columns * static_cast<std::int64_t>(sizeof(float)));
  CHECK(report.notes.empty());
  CHECK(dcp::references_of(run / "step-3").value().empty());
  CHECK(names_in(run, "shardmesh-tmp").empty());
  CHECK(prune_run(plan_prune(run, {.keep = {.last = 1}}).value()).value().steps == 2);
  CHECK(numbers_in(run) == numbers{3});
  CHECK(check_step(run / "step-3", {.deep = true}).ok());
  check_state(run / "step-3", 2);
}

TEST_CASE("a step to which others refer can be flattened, and they still read it") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_three(run);
  const std::string own = content_of(run / "step-2" / "__0_0.distcp");
  CHECK(flatten_step(run, 2).value().references == names{"step-1"});
  CHECK(content_of(run / "step-2" / "__0_0.distcp") == own);
  CHECK(names_in(run / "step-2", "_1.distcp") == std::set<std::string>{"__0_1.distcp", "__1_1.distcp"});
  for (const std::int64_t step : {1, 2, 3}) {
    const fs::path folder = run / folder_name(step, step_names::step);
    INFO(folder);
    CHECK(check_step(folder, {.deep = true}).ok());
  }
  check_state(run / "step-2", 2);
  check_state(run / "step-3", 2);
}

TEST_CASE("a step that refers to none stays as it is") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_three(run);
  const auto before = contents_of(run / "step-1");
  const flatten_report report = flatten_step(run, 1).value();
  CHECK(report.references.empty());
  CHECK(report.copied_bytes == 0);
  CHECK(contents_of(run / "step-1") == before);
}

TEST_CASE("a flattened step is the previous one of a later incremental save") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_three(run);
  REQUIRE(flatten_step(run, 3));
  save_steps(run, {4}, {.incremental = true});
  CHECK(dcp::references_of(run / "step-4").value() == names{"step-3"});
  check_state(run / "step-4", 4);
}

TEST_CASE("bytes that have changed, a lost record, and a user's file stop a flattening") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_three(run);
  check_refused(run, 7, errc::invalid_argument, "no step 7");
  check_refused(run, -1, errc::invalid_argument, "no step -1");
  std::ofstream(run / "step-3" / "notes.txt") << "keep me";
  check_refused(run, 3, errc::destination_exists, "notes.txt");
  fs::remove(run / "step-3" / "notes.txt");
  const fs::path other = run / "step-1" / "__0_0.distcp";
  const std::int64_t at = offset_of(other, -5);  // an element of "frozen"
  flip_byte(other, at);
  check_refused(run, 3, errc::checksum_mismatch, "step-1");
  flip_byte(other, at);
  fs::remove(run / "step-3" / ".shardmesh_checksums");
  check_refused(run, 3, errc::bad_format, "no record of checksums");
}

TEST_CASE("a step that is a symbolic link is flattened in its own run only") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run", other = scratch / "other";
  save_three(run);
  fs::create_directory(other);
  fs::create_directory_symlink(fs::absolute(run / "step-3"), other / "step-3");
  check_refused(other, 3, errc::unsupported, "the step is a symbolic link");
  CHECK(flatten_step(run, 3));
}

TEST_CASE("a step is not flattened while a run has the folder open") {
  const scratch_folder scratch;
  const fs::path run = scratch / "run";
  save_three(run);
  {
    const run_writer writer = run_writer::open(run).value();
    check_refused(run, 3, errc::destination_exists, "another run");
  }
  CHECK(flatten_step(run, 3));
}
