// SPDX-License-Identifier: Apache-2.0
// Four nodes train. Every tenth step also lies in the memory of another node, and every fiftieth in the store. One node
// is lost; the others resume from memory on a communicator of their own.
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>
#include <vector>

import shardmesh;
import shardmesh.replicas;

using namespace shardmesh;

// Your own state: this rank's rows of one tensor, and the number of the step.
struct model {
  std::int32_t rank = 0, ranks = 1;
  std::vector<float> rows{};
  std::int64_t step = 0;

  model(std::int32_t of_rank, std::int32_t of_ranks) : rank(of_rank), ranks(of_ranks) {
    rows.resize(static_cast<std::size_t>(12 / ranks * 4));
  }
  void train() {
    ++step;
    for (float& weight : rows) weight += 1;
  }
};

result<local_state> local_view(model& mine) {
  const std::int64_t count = 12 / mine.ranks;
  const tensor_view view{reinterpret_cast<std::byte*>(mine.rows.data()), dtype::float32, {}, {count, 4}, {4, 1}};
  local_state part;
  part.tensors.push_back({{"w"}, {12, 4}, dtype::float32, {{{{mine.rank * count, 0}, {count, 4}}, view}}});
  part.objects.push_back({{"step"}, {}, {mine.step}});
  return part;
}

result<void> set_objects(model& mine, std::span<const local_state_object> objects) {
  for (const local_state_object& object : objects)
    if (const auto* const step = std::get_if<std::int64_t>(&object.leaves.front())) mine.step = *step;
  return {};
}

// The failure domain of a rank. Here each rank is a node of its own; without this function, a domain is a host.
std::string node_of(std::int32_t rank) {
  return "node " + std::to_string(rank);
}

// Trains from the last step in memory, or in the store, or from the beginning.
result<resumed_step> train(const std::filesystem::path& folder, step_replicas& memory, communicator_ref comm,
                           std::int64_t steps) {
  SHARDMESH_TRY(checkpoint_run run, checkpoint_run::open(folder, comm));
  model mine(comm.rank(), comm.size());
  SHARDMESH_TRY(resumed_step resumed, memory.resume(mine, comm, run));
  const std::int64_t last = mine.step + steps;
  while (mine.step < last) {
    mine.train();
    if (mine.step % 10 == 0) SHARDMESH_TRY(memory.start_keep(mine.step, mine, comm));
    if (mine.step % 50 == 0) SHARDMESH_TRY(run.save(mine.step, mine, comm));
  }
  SHARDMESH_TRY(memory.wait());
  if (mine.rows.back() != static_cast<float>(mine.step)) return fail(errc::checksum_mismatch, "the values differ");
  return resumed;
}

int main() {
  const std::filesystem::path folder = "resume_from_memory.run";
  std::filesystem::remove_all(folder);
  std::vector<step_replicas> memory;  // in a real program, each process has one
  for (int rank = 0; rank < 4; ++rank)
    memory.push_back(step_replicas::make({.copies = 2, .failure_domain = node_of}).value());

  const auto trained = run_ranks(4, [&](any_communicator& comm) -> result<void> {
    SHARDMESH_TRY(train(folder, memory[static_cast<std::size_t>(comm.rank())], comm, 75));
    return {};
  });
  if (!trained) return std::fprintf(stderr, "%s\n", to_string(trained.error()).c_str()), 1;

  // Node 2 is lost, with its part of each step and its copies.
  memory.erase(memory.begin() + 2);

  const auto resumed = run_ranks(3, [&](any_communicator& comm) -> result<void> {
    SHARDMESH_TRY(const resumed_step from, train(folder, memory[static_cast<std::size_t>(comm.rank())], comm, 20));
    if (comm.rank() == 0)
      std::printf("3 ranks resumed from step %d of 4 ranks, in %s\n", static_cast<int>(from.step.value_or(0)),
                  from.is_from_memory ? "memory" : "the store");
    const bool is_right = from.step == 70 && from.is_from_memory;
    return is_right ? result<void>() : fail(errc::checksum_mismatch, "another step");
  });
  if (!resumed) return std::fprintf(stderr, "%s\n", to_string(resumed.error()).c_str()), 1;
  return 0;
}
