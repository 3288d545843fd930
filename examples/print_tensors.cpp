// SPDX-License-Identifier: Apache-2.0
// Prints the tensors of a checkpoint of any format: key, dtype, shape, and the first values of float32 tensors.
// Usage: print_tensors CHECKPOINT
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdio>
#include <string>

import shardmesh;

namespace sm = shardmesh;

sm::result<void> print_tensors(const char* path) {
  SHARDMESH_TRY(const sm::checkpoint trained, sm::open(path));
  for (const sm::tensor_entry& entry : trained.tensors()) {
    std::printf("%s", to_string(entry).c_str());
    if (entry.type == sm::dtype::float32) {
      SHARDMESH_TRY(const sm::host_tensor tensor, trained.load(entry.key));
      const auto values = tensor.values<float>();
      for (std::size_t i = 0; i < values.size() && i < 3; ++i) std::printf(" %g", static_cast<double>(values[i]));
    }
    std::printf("\n");
  }
  return {};
}

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: print_tensors CHECKPOINT\n"), 2;
  const auto printed = print_tensors(argv[1]);
  if (!printed) return std::fprintf(stderr, "%s\n", to_string(printed.error()).c_str()), 1;
}
