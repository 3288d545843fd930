// SPDX-License-Identifier: Apache-2.0
// One rank's part of a checkpoint: a rank of a mesh of 3 loads its rows of every tensor, and nothing else.
// Usage: load_rows CHECKPOINT [RANK]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

import shardmesh;

int main(int argc, char** argv) {
  using namespace shardmesh;
  if (argc < 2) return std::fprintf(stderr, "usage: load_rows CHECKPOINT [RANK]\n"), 2;
  const std::int32_t rank = argc > 2 ? std::atoi(argv[2]) : 0;

  const device_mesh mesh = parse_mesh("dp=3").value();
  const auto rules = parse_placement_rules({".*=S(0)"}).value();
  const auto state = load_sharded<host_tensor>(argv[1], mesh, rules, rank);
  if (!state) return std::fprintf(stderr, "%s\n", to_string(state.error()).c_str()), 1;

  const std::vector<path> paths = state->spec().leaf_paths();
  for (std::size_t i = 0; i < paths.size(); ++i)
    if (const auto* tensor = state->leaves()[i].dtensor())
      std::printf("%s: %s\n", to_string(paths[i]).c_str(), to_string(tensor->local().sizes()).c_str());
}
