// SPDX-License-Identifier: Apache-2.0
// Four ranks train, and save every tenth step in the background. The training "crashes" in the middle of a save; two
// ranks then resume from the newest complete step.
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>
#include <vector>

import shardmesh;
import shardmesh.run;

using namespace shardmesh;

// Your own state: this rank's rows of one tensor, and the number of the step.
struct model {
  std::int32_t rank = 0, ranks = 1;
  std::vector<float> rows{};
  std::int64_t step = 0;

  model(std::int32_t of_rank, std::int32_t of_ranks) : rank(of_rank), ranks(of_ranks) {
    rows.resize(static_cast<std::size_t>(16 / ranks * 4));
  }
  void train() {
    ++step;
    for (float& weight : rows) weight += 1;
  }
};

result<local_state> local_view(model& mine) {
  const std::int64_t count = 16 / mine.ranks;
  const tensor_view view{reinterpret_cast<std::byte*>(mine.rows.data()), dtype::float32, {}, {count, 4}, {4, 1}};
  local_state part;
  part.tensors.push_back({{"w"}, {16, 4}, dtype::float32, {{{{mine.rank * count, 0}, {count, 4}}, view}}});
  part.objects.push_back({{"step"}, {}, {mine.step}});
  return part;
}

result<void> set_objects(model& mine, std::span<const local_state_object> objects) {
  for (const local_state_object& object : objects)
    if (const auto* const step = std::get_if<std::int64_t>(&object.leaves.front())) mine.step = *step;
  return {};
}

// Resumes from the newest complete step, and trains further. Returns the step from which it resumed; 0 for none.
result<std::int64_t> train(const std::filesystem::path& folder, communicator_ref comm, std::int64_t steps) {
  const checkpoint_run_options options{.incremental = true, .keep = {.last = 2, .every = 100}};
  SHARDMESH_TRY(checkpoint_run run, checkpoint_run::open(folder, comm, options));
  model mine(comm.rank(), comm.size());
  SHARDMESH_TRY(const resumed_run resumed, run.resume(mine, comm));
  if (comm.rank() == 0)
    for (const error& skipped : resumed.skipped) std::printf("note: %s\n", to_string(skipped).c_str());
  const std::int64_t first = mine.step;
  while (mine.step < first + steps) {
    mine.train();
    if (mine.step % 10 != 0) continue;
    SHARDMESH_TRY(const started_save started, run.start_save(mine.step, mine, comm));
    for (const ended_save& ended : started.ended) SHARDMESH_TRY(ended.outcome);
  }
  for (const ended_save& ended : run.wait()) SHARDMESH_TRY(ended.outcome);
  if (mine.rows.back() != static_cast<float>(mine.step)) return fail(errc::checksum_mismatch, "the values differ");
  return first;
}

int main() {
  const std::filesystem::path folder = "train_and_resume.run";
  std::filesystem::remove_all(folder);
  const auto trained = run_ranks(4, [&](any_communicator& comm) -> result<void> {
    SHARDMESH_TRY(train(folder, comm, 50));
    return {};
  });
  if (!trained) return std::fprintf(stderr, "%s\n", to_string(trained.error()).c_str()), 1;

  // The "crash": the newest step lost its description.
  std::filesystem::remove(folder / "step-50" / ".metadata");

  const auto resumed = run_ranks(2, [&](any_communicator& comm) -> result<void> {
    SHARDMESH_TRY(const std::int64_t first, train(folder, comm, 20));
    if (comm.rank() == 0) std::printf("2 ranks resumed from step %d of 4 ranks\n", int(first));
    return first == 40 ? result<void>() : fail(errc::checksum_mismatch, "another step");
  });
  if (!resumed) return std::fprintf(stderr, "%s\n", to_string(resumed.error()).c_str()), 1;
  return 0;
}
