// SPDX-License-Identifier: Apache-2.0
// Four ranks resume from the newest checkpoint of a folder, save one at every step, and keep the last two.
// Usage: save_keep_resume FOLDER STEPS
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

import shardmesh;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

constexpr std::int32_t ranks = 4;
constexpr std::size_t kept = 2;

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

fs::path folder_of(const fs::path& run, int step) {
  return run / ("step-" + std::to_string(step));
}

// The saved steps, ascending. A checkpoint appears when it is complete, so each of them can be loaded.
std::vector<int> saved_steps(const fs::path& run) {
  std::vector<int> steps;
  std::error_code missing;
  for (const fs::directory_entry& entry : fs::directory_iterator(run, missing)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-")) steps.push_back(std::atoi(name.c_str() + 5));
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

result<void> train(const fs::path& run, int last, any_communicator& comm) {
  SHARDMESH_TRY(auto state, make_state(comm.rank()));
  const std::vector<int> steps = saved_steps(run);
  if (!steps.empty()) SHARDMESH_TRY(load(folder_of(run, steps.back()), state, comm));  // in place
  const int done = static_cast<int>(*state.find({"step"})->integer());
  if (comm.rank() == 0) std::printf("resumes after step %d\n", done);

  for (int step = done + 1; step <= last; ++step) {
    for (float& value : state.find({"model", "weight"})->dtensor()->local().values<float>()) value += 1.0F;
    SHARDMESH_TRY(state.set({"step"}, step));
    SHARDMESH_TRY(save(folder_of(run, step), state, comm));
    if (comm.rank() != 0) continue;
    std::vector<int> old = saved_steps(run);  // one rank removes; the new checkpoint is on the disk
    old.resize(old.size() - std::min(old.size(), kept));
    for (const int each : old) fs::remove_all(folder_of(run, each));
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: save_keep_resume FOLDER STEPS\n"), 2;
  const fs::path run = argv[1];
  fs::create_directories(run);
  const auto done = run_ranks(ranks, [&](any_communicator& comm) { return train(run, std::atoi(argv[2]), comm); });
  if (!done) return std::fprintf(stderr, "%s\n", to_string(done.error()).c_str()), 1;
  for (const int step : saved_steps(run)) std::printf("keeps step %d\n", step);
}
