// SPDX-License-Identifier: Apache-2.0
// One rank's part of a checkpoint: a rank of a mesh of 3 loads its rows of every tensor, and nothing else.
// Usage: load_rows CHECKPOINT [RANK]
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

import shardmesh;

namespace sm = shardmesh;

sm::result<void> print_rows(const char* path, std::int32_t rank) {
  SHARDMESH_TRY(const auto trained, sm::open(path));
  SHARDMESH_TRY(const auto mesh, sm::parse_mesh("dp=3"));
  SHARDMESH_TRY(const auto rules, sm::parse_placement_rules({".*=S(0)"}));
  SHARDMESH_TRY(const auto mine, trained.state_dict(mesh, rules, rank));

  const std::vector<sm::path> paths = mine.spec().leaf_paths();
  for (std::size_t i = 0; i < paths.size(); ++i)
    if (const auto* tensor = mine.leaves()[i].dtensor())
      std::printf("%s: %s\n", to_string(paths[i]).c_str(), to_string(tensor->local().sizes()).c_str());
  return {};
}

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: load_rows CHECKPOINT [RANK]\n"), 2;
  const auto printed = print_rows(argv[1], argc > 2 ? std::atoi(argv[2]) : 0);
  if (!printed) return std::fprintf(stderr, "%s\n", to_string(printed.error()).c_str()), 1;
}
