// SPDX-License-Identifier: Apache-2.0
// Four ranks resume from the newest good step of a run, save a step after each update, and keep the last two.
// Usage: save_keep_resume FOLDER STEPS
#include <shardmesh/try.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

import shardmesh;
import shardmesh.run;

using namespace shardmesh;

namespace {

constexpr std::int32_t ranks = 4;

// The state of one rank at step 0: its rows of an 8 x 4 weight.
result<state_dict<host_tensor>> make_state(std::int32_t rank) {
  SHARDMESH_TRY(const auto mesh, device_mesh::make({ranks}));
  SHARDMESH_TRY(const layout rows, layout::make(mesh, {placement::shard(0)}, {8, 4}));
  SHARDMESH_TRY(auto weight, dtensor<host_tensor>::allocate(rows, rank, dtype::float32));
  for (float& value : weight.local().values<float>()) value = 0.0F;
  state_dict<host_tensor> state;
  SHARDMESH_TRY(state.set({"model", "weight"}, std::move(weight)));
  SHARDMESH_TRY(state.set({"step"}, 0));
  return state;
}

result<void> train(const std::filesystem::path& folder, int last, any_communicator& comm) {
  const checkpoint_run_options options{.keep = {.last = 2}};
  SHARDMESH_TRY(checkpoint_run run, checkpoint_run::open(folder, comm, options));
  SHARDMESH_TRY(auto state, make_state(comm.rank()));
  SHARDMESH_TRY(const resumed_run resumed, run.resume(state, comm));  // in place
  const int done = static_cast<int>(*state.find({"step"})->integer());
  if (comm.rank() == 0) {
    for (const error& skipped : resumed.skipped) std::printf("note: %s\n", to_string(skipped).c_str());
    std::printf("resumes after step %d\n", done);
  }

  for (int step = done + 1; step <= last; ++step) {
    for (float& value : state.find({"model", "weight"})->dtensor()->local().values<float>()) value += 1.0F;
    SHARDMESH_TRY(state.set({"step"}, step));
    SHARDMESH_TRY(run.save(step, state, comm));  // rank 0 then deletes old steps in the background
  }

  run.wait();  // for the deletion
  if (comm.rank() != 0) return {};
  SHARDMESH_TRY(const std::vector<run_step> steps, run.steps());
  for (const run_step& kept : steps) std::printf("keeps step %d\n", static_cast<int>(kept.step));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: save_keep_resume FOLDER STEPS\n"), 2;
  const auto done = run_ranks(ranks, [&](any_communicator& comm) { return train(argv[1], std::atoi(argv[2]), comm); });
  if (!done) return std::fprintf(stderr, "%s\n", to_string(done.error()).c_str()), 1;
}
