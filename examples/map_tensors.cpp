// SPDX-License-Identifier: Apache-2.0
// Sums every float32 tensor of a checkpoint in place: nothing is copied, and bytes that are not accessed are not read.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>

import shardmesh;

int main(int argc, char** argv) {
  using namespace shardmesh;
  if (argc != 2) return std::fprintf(stderr, "usage: map_tensors CHECKPOINT\n"), 2;
  const auto checkpoint = open_checkpoint(argv[1]);
  if (!checkpoint) return std::fprintf(stderr, "%s\n", to_string(checkpoint.error()).c_str()), 1;
  tensor_map tensors(**checkpoint);
  for (const tensor_entry& entry : (*checkpoint)->contents().tensors) {
    if (entry.type != dtype::float32) continue;
    auto mapped = tensors.tensor(entry.key);
    if (!mapped) std::printf("%s\n", to_string(mapped.error()).c_str());
    if (!mapped || !is_contiguous(mapped->view()) || !mapped->check()) continue;
    const const_tensor_view& view = mapped->view();
    const auto count = static_cast<std::size_t>(box::whole(view.sizes).volume());
    double sum = 0;
    for (const float value : std::span(reinterpret_cast<const float*>(view.data), count)) sum += value;
    std::printf("%s: sum %.4f\n", entry.key.c_str(), sum);
  }
}
