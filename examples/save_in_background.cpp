// SPDX-License-Identifier: Apache-2.0
// Ranks continue training while checkpoints are written. The staging copies come from a pool: the next save reuses
// them, and they never exceed the pool's limit.
#include <shardmesh/try.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>
#include <vector>

import shardmesh;

using namespace shardmesh;

// Your own state, of which shardmesh knows nothing: the rows of one tensor. Every rank has the same number.
struct rows_of_rank {
  std::int32_t rank = 0, ranks = 0;
  std::vector<float> values = std::vector<float>(1024 * 4);
};

// All that `save`, `start_save` and `load` need: the tensors' names, whole shapes, and this rank's boxes and memory.
result<local_state> local_view(rows_of_rank& mine) {
  const auto rows = static_cast<std::int64_t>(mine.values.size()) / 4;
  const tensor_view view{reinterpret_cast<std::byte*>(mine.values.data()), dtype::float32, {}, {rows, 4}, {4, 1}};
  local_state held;
  held.tensors.push_back({{"w"}, {mine.ranks * rows, 4}, dtype::float32, {{{{mine.rank * rows, 0}, {rows, 4}}, view}}});
  return held;
}

int main() {
  constexpr std::int32_t ranks = 2;
  const thread_group savers(ranks);  // a save needs a communicator of its own
  const auto trained = run_ranks(ranks, [&](any_communicator& comm) -> result<void> {
    any_communicator saver(savers.communicator(comm.rank()));
    rows_of_rank weights{comm.rank(), ranks};
    SHARDMESH_TRY(const staging_pool pool,
                  staging_pool::make({.max_bytes = 64 << 20, .max_saves = 1}));  // one per rank
    std::optional<save_in_progress> saving;
    for (int step = 1; step <= 3; ++step) {
      for (float& weight : weights.values) weight = static_cast<float>(step);
      if (saving) SHARDMESH_TRY(saving->wait());
      const rank_save_options options{.overwrite = true, .within = std::chrono::minutes(1), .staging = pool};
      SHARDMESH_TRY(saving, start_save("background.checkpoint", weights, saver, options));
    }
    SHARDMESH_TRY(saving->wait());
    if (comm.rank() == 0) {
      const staging_use use = pool.use();
      std::printf("saves: 3, memory taken: %d, bytes kept: %d\n", int(use.taken), int(use.kept_bytes));
    }
    for (float& weight : weights.values) weight = 0;
    SHARDMESH_TRY(load("background.checkpoint", weights, comm));
    return weights.values.back() == 3 && pool.use().taken == 1 ? result<void>()
                                                               : fail(errc::checksum_mismatch, "it differs");
  });
  if (!trained) std::fprintf(stderr, "%s\n", to_string(trained.error()).c_str());
  return trained ? 0 : 1;
}
