// SPDX-License-Identifier: Apache-2.0
// Background saves through a pool, by the ranks of every communicator. A save writes the values that the tensors held
// when it began, and the second save reuses the memory of the first. Limits are in threads/staging_pool_test.cpp.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <rank_folder.hpp>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "problems_of.hpp"

import shardmesh.collective_checkpoint;
import shardmesh.test.saving;

using namespace shardmesh;
using namespace saving;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

TEST_CASE("saves through a pool write what the tensors held when they began, in the memory of the first") {
  const fabric::rank_folder folder("staging");
  on_ranks({1, 2, 4}, [&](any_communicator& comm) -> std::string {
    const staging_pool pool = staging_pool::make().value();
    for (const std::int32_t value : {5, 6, 7}) {
      const fs::path checkpoint = folder.path / (std::to_string(comm.size()) + "-" + std::to_string(value));
      rows mine(comm.rank(), comm.size(), value);
      rank_save_options options{.overwrite = true, .within = 30s, .staging = pool};
      if (value == 6) options.format = target_format::hf;
      auto saving = start_save(checkpoint, mine.state, comm, options);
      if (!saving) return to_string(saving.error());
      std::fill(mine.memory.begin(), mine.memory.end(), 0);
      if (!saving->wait()) return text_of(saving->wait().error().problems());
      const std::int64_t bytes = rows::per_rank * rows::width * 4;
      if (pool.use() != staging_use{.kept_bytes = bytes, .taken = 1}) return "the pool took more, or kept another size";
      const auto report = load(checkpoint, mine.state, comm, {.within = 30s});
      if (!report) return text_of(report.error().problems());
      if (std::count(mine.memory.begin(), mine.memory.end(), value) != std::ssize(mine.memory)) return "it differs";
    }
    return "";
  });
}

TEST_CASE("a save that fails gives its staging back, and a rank without room fails the save on every rank") {
  const fabric::rank_folder folder("staging-faults");
  on_ranks({1, 3}, [&](any_communicator& comm) -> std::string {
    const fs::path checkpoint = folder.path / std::to_string(comm.size());
    rows mine(comm.rank(), comm.size(), 5);
    const std::int32_t last = comm.size() - 1;
    const staging_pool small = staging_pool::make({.max_bytes = comm.rank() == last ? 100 : 0}).value();
    rank_save_options options{.overwrite = true, .within = 30s, .staging = small};
    const auto refused = start_save(checkpoint, mine.state, comm, options);
    const std::string text = "the copies of a save do not fit into its staging pool (rank " + std::to_string(last) +
                             "): expected at most 100 bytes, found 8192 bytes";
    if (refused || to_string(refused.error()) != text)
      return refused ? "it was not refused" : to_string(refused.error());
    if (small.use().saves != 0) return "the refused save keeps its place";
    const staging_pool pool = staging_pool::make({.max_saves = 1}).value();
    options.staging = pool;
    options.before = [&](save_phase now) -> result<void> {
      if (now == save_phase::write && comm.rank() == 0) return fail(errc::io, "the fault");
      return {};
    };
    auto failing = start_save(checkpoint, mine.state, comm, options);
    if (!failing) return to_string(failing.error());
    if (std::string wrong = must_say(problems_of(failing->wait()), {"the fault (rank 0)"}); !wrong.empty())
      return wrong;
    if (pool.use().saves != 0 || pool.use().used_bytes != 0) return "the failed save keeps its staging";
    return fs::exists(checkpoint) ? "there is a checkpoint" : "";
  });
}
