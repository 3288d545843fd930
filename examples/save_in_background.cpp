// SPDX-License-Identifier: Apache-2.0
// Ranks continue training while checkpoints are written. The staging copies come from a pool: the next save reuses
// them, and they never exceed the pool's limit.
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

// The rows of one tensor; every rank has the same number.
local_state rows_of(std::vector<float>& memory, std::int32_t rank, std::int32_t ranks) {
  const auto rows = static_cast<std::int64_t>(memory.size()) / 4;
  const tensor_view view{reinterpret_cast<std::byte*>(memory.data()), dtype::float32, {}, {rows, 4}, {4, 1}};
  local_state held;
  held.tensors.push_back({{"w"}, {ranks * rows, 4}, dtype::float32, {{{{rank * rows, 0}, {rows, 4}}, view}}});
  return held;
}

int main() {
  constexpr std::int32_t ranks = 2;
  const thread_group savers(ranks);  // a save needs a communicator of its own
  const auto trained = run_ranks(ranks, [&](any_communicator& comm) -> result<void> {
    any_communicator saver(savers.communicator(comm.rank()));
    std::vector<float> weights(1024 * 4);
    const local_state held = rows_of(weights, comm.rank(), ranks);
    auto pool = staging_pool::make({.max_bytes = 64 << 20, .max_saves = 1});  // one per rank
    if (!pool) return std::move(pool).error();
    std::optional<save_in_progress> saving;
    for (int step = 1; step <= 3; ++step) {
      for (float& weight : weights) weight = static_cast<float>(step);
      if (saving && !saving->wait().ok()) return saving->wait().problems.front();
      auto started =
          start_save("background.checkpoint", held, saver,
                     {.saving = {.output = {.overwrite = true},
                                 .call = {.deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1)}},
                      .staging = *pool});
      if (!started) return std::move(started).error();
      saving = *std::move(started);
    }
    if (!saving->wait().ok()) return saving->wait().problems.front();
    if (comm.rank() == 0) {
      const staging_use use = pool->use();
      std::printf("3 saves, memory taken %d time(s), %d bytes kept\n", int(use.taken), int(use.kept_bytes));
    }
    for (float& weight : weights) weight = 0;
    local_state wanted = held;
    const load_report loaded = load("background.checkpoint", wanted, comm);
    if (!loaded.ok()) return loaded.problems.front();
    return weights.back() == 3 && pool->use().taken == 1 ? result<void>() : fail(errc::checksum_mismatch, "it differs");
  });
  if (!trained) std::fprintf(stderr, "%s\n", to_string(trained.error()).c_str());
  return trained ? 0 : 1;
}
