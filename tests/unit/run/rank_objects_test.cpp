// SPDX-License-Identifier: Apache-2.0
// Tests that each rank gets its own objects back, and what happens to them on another number of ranks.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <scratch_folder.hpp>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "run_states.hpp"

using namespace shardmesh;
using namespace run_states;
namespace fs = std::filesystem;

namespace {

objects_of_rank objects_on(std::int32_t rank) {
  objects_of_rank made;
  made.emplace("rng", std::vector<std::byte>{std::byte{7}, static_cast<std::byte>(rank)});
  made.emplace("data.loader", std::int64_t{100} + rank);
  return made;
}

void save_with_objects(const fs::path& run, std::int32_t ranks, std::int64_t step) {
  on_ranks(ranks, [&](any_communicator& comm) -> result<void> {
    auto opened = checkpoint_run::open(run, comm);
    if (!opened) return std::move(opened).error();
    trainer state = trained(comm, step);
    run_save_options how = quick();
    how.rank_objects = objects_on(comm.rank());
    const auto saved = opened->save(step, state, comm, how);
    if (!saved) return saved.error();
    return {};
  });
}

// Resumes with these options on this many ranks. Each rank calls `check` with its answer.
void resume_on(const fs::path& run, std::int32_t ranks, const checkpoint_run_options& options,
               function_ref<result<void>(const result<resumed_run>&, const trainer&, any_communicator&)> check) {
  on_ranks(ranks, [&](any_communicator& comm) -> result<void> {
    auto opened = checkpoint_run::open(run, comm, options);
    if (!opened) return std::move(opened).error();
    trainer state(comm.rank(), comm.size());
    const auto resumed = opened->resume(state, comm);
    return check(resumed, state, comm);
  });
}

}  // namespace

TEST_CASE("as many ranks as saved a step get their own objects back") {
  const scratch_folder scratch;
  save_with_objects(scratch / "run", 4, 1);
  const auto check = [](const result<resumed_run>& resumed, const trainer& state,
                        any_communicator& comm) -> result<void> {
    if (!resumed) return resumed.error();
    if (auto same = expect(resumed->rank_objects == objects_on(comm.rank()), "other objects"); !same) return same;
    return expect(resumed->dropped.empty() && state == trained(comm, 1), "another state");
  };
  resume_on(scratch / "run", 4, {}, check);
}

TEST_CASE("objects of a background save come back, too") {
  const scratch_folder scratch;
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    auto run = checkpoint_run::open(scratch / "run", comm);
    if (!run) return std::move(run).error();
    trainer state = trained(comm, 1);
    run_save_options how = quick();
    how.rank_objects = objects_on(comm.rank());
    const auto started = run->start_save(1, state, comm, how);
    if (!started) return started.error();
    for (const ended_save& ended : run->wait())
      if (!ended.outcome) return ended.outcome.error();
    const auto resumed = run->resume(state, comm);
    if (!resumed) return resumed.error();
    return expect(resumed->rank_objects == objects_on(comm.rank()), "other objects");
  });
}

TEST_CASE("another number of ranks is refused before the state changes, and the error names an object") {
  const scratch_folder scratch;
  save_with_objects(scratch / "run", 2, 1);
  const auto check = [](const result<resumed_run>& resumed, const trainer& state,
                        any_communicator& comm) -> result<void> {
    if (resumed) return expect(false, "it resumes");
    const error& why = resumed.error();
    const bool is_named = why.code == errc::invalid_argument && why.key == "rank_objects.data.loader.0" &&
                          why.expected == "2 ranks" && why.found == "4 ranks" &&
                          why.hint.find("when_resized") != std::string::npos;
    if (auto named = expect(is_named, to_string(why)); !named) return named;
    return expect(state == trainer(comm.rank(), comm.size()), "the state has changed");
  };
  resume_on(scratch / "run", 4, {}, check);
}

TEST_CASE("dropped objects are named, and the state is loaded") {
  const scratch_folder scratch;
  save_with_objects(scratch / "run", 2, 1);
  const auto check = [](const result<resumed_run>& resumed, const trainer& state,
                        any_communicator& comm) -> result<void> {
    if (!resumed) return resumed.error();
    const std::vector<std::string> keys{"rank_objects.data.loader.0", "rank_objects.data.loader.1",
                                        "rank_objects.rng.0", "rank_objects.rng.1"};
    if (auto same = expect(resumed->dropped == keys, "other keys"); !same) return same;
    return expect(resumed->rank_objects.empty() && state == trained(comm, 1), "another state");
  };
  resume_on(scratch / "run", 1, {.when_resized = resized_objects::drop}, check);
}

TEST_CASE("a function makes the objects of each rank from those of all ranks that saved") {
  const scratch_folder scratch;
  save_with_objects(scratch / "run", 2, 1);
  const auto convert = [](std::span<const objects_of_rank> saved, std::int32_t rank,
                          std::int32_t ranks) -> result<objects_of_rank> {
    if (saved.size() != 2 || saved[0] != objects_on(0) || saved[1] != objects_on(1))
      return fail(errc::invalid_argument, "other objects");
    objects_of_rank made;
    made.emplace("share", std::int64_t{10} * ranks + rank);
    return made;
  };
  const auto check = [](const result<resumed_run>& resumed, const trainer&, any_communicator& comm) -> result<void> {
    if (!resumed) return resumed.error();
    objects_of_rank expected;
    expected.emplace("share", std::int64_t{40} + comm.rank());
    return expect(resumed->rank_objects == expected && resumed->dropped.empty(), "other objects");
  };
  resume_on(scratch / "run", 4, {.convert_objects = convert}, check);
}

TEST_CASE("an error of that function on one rank is every rank's error, and no older step is loaded") {
  const scratch_folder scratch;
  save_with_objects(scratch / "run", 2, 1);
  save_with_objects(scratch / "run", 2, 2);
  const auto convert = [](std::span<const objects_of_rank>, std::int32_t rank,
                          std::int32_t) -> result<objects_of_rank> {
    if (rank == 1) return fail(errc::io, "no such shard");
    return objects_of_rank();
  };
  const auto check = [](const result<resumed_run>& resumed, const trainer&, any_communicator&) -> result<void> {
    if (resumed) return expect(false, "it resumes");
    const std::string text = to_string(resumed.error());
    return expect(resumed.error().code == errc::invalid_argument && text.find("no such shard") != std::string::npos,
                  text);
  };
  resume_on(scratch / "run", 4, {.convert_objects = convert}, check);
}

TEST_CASE("a step without objects of ranks resumes on any number of ranks, and an object without a name is refused") {
  const scratch_folder scratch;
  save_steps(scratch / "run", {1});
  const auto check = [](const result<resumed_run>& resumed, const trainer& state,
                        any_communicator& comm) -> result<void> {
    if (!resumed) return resumed.error();
    return expect(resumed->rank_objects.empty() && state == trained(comm, 1), "another state");
  };
  resume_on(scratch / "run", 4, {}, check);
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    auto run = checkpoint_run::open(scratch / "run", comm);
    if (!run) return std::move(run).error();
    trainer state = trained(comm, 2);
    run_save_options how = quick();
    if (comm.rank() == 1) how.rank_objects.emplace("", std::int64_t{1});
    const auto saved = run->save(2, state, comm, how);
    return expect(!saved && saved.error().code == errc::invalid_argument, text_of(saved));
  });
  CHECK(numbers_in(scratch / "run") == std::vector<std::int64_t>{1});
}
