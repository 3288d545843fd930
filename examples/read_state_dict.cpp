// SPDX-License-Identifier: Apache-2.0
// Reads a checkpoint of any format as a state dict: its tensors and its objects, each at its path.
// Usage: read_state_dict CHECKPOINT
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

import shardmesh;
import shardmesh.state;

int main(int argc, char** argv) {
  using namespace shardmesh;
  if (argc < 2) return std::fprintf(stderr, "usage: read_state_dict CHECKPOINT\n"), 2;
  const auto state = read_state_dict<host_tensor>(argv[1]);
  if (!state) return std::fprintf(stderr, "%s\n", to_string(state.error()).c_str()), 1;

  const std::vector<path> paths = state->spec().leaf_paths();
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const state_value<host_tensor>& value = state->leaves()[i];
    const std::string what = value.tensor() ? to_string(value.tensor()->sizes()) : std::string(name(value.kind()));
    std::printf("%s: %s\n", to_string(paths[i]).c_str(), what.c_str());
  }
  if (const auto* epoch = state->find({"epoch"})) std::printf("epoch %d\n", static_cast<int>(*epoch->integer()));
}
