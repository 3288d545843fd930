// SPDX-License-Identifier: Apache-2.0
// Prints the tensors of a checkpoint of any format: key, dtype, shape, and the first values of float32 tensors.
// Usage: print_tensors CHECKPOINT
#include <cstddef>
#include <cstdio>
#include <string>

import shardmesh;

int main(int argc, char** argv) {
  using namespace shardmesh;
  if (argc != 2) return std::fprintf(stderr, "usage: print_tensors CHECKPOINT\n"), 2;
  const auto checkpoint = open_checkpoint(argv[1]);
  if (!checkpoint) return std::fprintf(stderr, "%s\n", to_string(checkpoint.error()).c_str()), 1;

  for (const tensor_entry& entry : (*checkpoint)->contents().tensors) {
    std::printf("%s: %s%s", entry.key.c_str(), to_string(entry.type).c_str(), to_string(entry.shape).c_str());
    if (entry.type == dtype::float32) {
      const result<host_tensor> tensor = load_tensor(**checkpoint, entry.key);
      if (!tensor) return std::fprintf(stderr, "%s\n", to_string(tensor.error()).c_str()), 1;
      const auto values = tensor->values<float>();
      for (std::size_t i = 0; i < values.size() && i < 3; ++i) std::printf(" %g", static_cast<double>(values[i]));
    }
    std::printf("\n");
  }
}
