// SPDX-License-Identifier: Apache-2.0
// Caches of plans that meet another group than the one that made the plan: the ranks make a new plan.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <rank_folder.hpp>
#include <string>
#include <vector>
#include <watchdog.hpp>
import shardmesh.collective_checkpoint;
import shardmesh.test.saving;

using namespace shardmesh;
using namespace saving;
using namespace std::chrono_literals;

namespace {

// Saves on ranks of which rank r has the cache `caches[r]`, and loads the result.
void save_and_load(const std::filesystem::path& checkpoint, const std::vector<save_plan_cache>& caches,
                   std::int32_t value) {
  const auto size = static_cast<std::int32_t>(caches.size());
  const auto ran = run_ranks(size, [&](any_communicator& comm) -> result<void> {
    rows mine(comm.rank(), size, value);
    const auto saved = save(checkpoint, mine.state, comm,
                            {.overwrite = true, .within = 30s, .plans = caches[static_cast<std::size_t>(comm.rank())]});
    if (!saved) return saved.error();
    rows loaded(comm.rank(), size, 0);
    const auto report = load(checkpoint, loaded.state, comm, {.within = 30s});
    if (!report) return report.error();
    return loaded.memory == mine.memory ? result<void>() : fail(errc::checksum_mismatch, "other values were saved");
  });
  INFO((ran ? "" : to_string(ran.error())));
  CHECK(ran);
}

std::vector<std::int64_t> reuses_of(const std::vector<save_plan_cache>& caches) {
  std::vector<std::int64_t> counts;
  for (const save_plan_cache& one : caches) counts.push_back(one.reuses());
  return counts;
}

}  // namespace

TEST_CASE("a plan is used by the ranks that made it, in their order, and by no other group") {
  const watchdog dog(120s);
  const fabric::rank_folder folder("plan-groups");
  const std::filesystem::path step = folder.path / "step";
  const auto make = [](std::size_t count) {
    std::vector<save_plan_cache> made;
    for (std::size_t i = 0; i < count; ++i) made.push_back(save_plan_cache::make());
    return made;
  };
  const std::vector<save_plan_cache> caches = make(3);
  save_and_load(step, caches, 1);
  save_and_load(step, caches, 2);
  CHECK(reuses_of(caches) == std::vector<std::int64_t>{1, 1, 1});
  // Every rank has a plan of its own number, but they are of different groups.
  const std::vector<save_plan_cache> others = make(3);
  save_and_load(step, others, 3);
  const std::vector<save_plan_cache> mixed{caches[0], others[1], caches[2]};
  save_and_load(step, mixed, 4);
  CHECK(reuses_of(mixed) == std::vector<std::int64_t>{1, 0, 1});
  save_and_load(step, mixed, 5);
  CHECK(reuses_of(mixed) == std::vector<std::int64_t>{2, 1, 2});
  // The same ranks in another order, and fewer ranks.
  save_and_load(step, {mixed[1], mixed[0], mixed[2]}, 6);
  save_and_load(step, {mixed[0], mixed[1]}, 7);
  CHECK(reuses_of(mixed) == std::vector<std::int64_t>{2, 1, 2});
}
