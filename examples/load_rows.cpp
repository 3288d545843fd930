// SPDX-License-Identifier: Apache-2.0
// One rank's part of a checkpoint: this rank of a mesh of 3 loads its rows of every tensor, and nothing else.
// Usage: load_rows CHECKPOINT [RANK]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

import shardmesh;

int main(int argc, char** argv) {
  using namespace shardmesh;
  if (argc < 2) return std::fprintf(stderr, "usage: load_rows CHECKPOINT [RANK]\n"), 2;
  const std::int32_t rank = argc > 2 ? std::atoi(argv[2]) : 0;

  auto checkpoint = open_checkpoint(argv[1]);
  if (!checkpoint) return std::fprintf(stderr, "%s\n", to_string(checkpoint.error()).c_str()), 1;

  const device_mesh mesh = parse_mesh("dp=3").value();
  std::vector<host_tensor> parts;
  std::vector<load_request> requests;
  for (const tensor_entry& tensor : (*checkpoint)->contents().tensors) {
    const placement place = tensor.shape.empty() ? placement::replicate() : placement::shard(0);
    const layout mine = layout::make(mesh, {place}, tensor.shape).value();
    for (const placed_box& part : mine.boxes(rank)) {
      parts.push_back(host_tensor::make(tensor.type, part.where.sizes).value());
      requests.push_back({tensor.key, part.where, adapter<host_tensor>::view(parts.back())});
    }
  }
  if (auto loaded = load(**checkpoint, requests); !loaded)
    return std::fprintf(stderr, "%s\n", to_string(loaded.error()).c_str()), 1;
  for (const load_request& request : requests)
    std::printf("%s %s\n", request.key.c_str(), to_string(request.where).c_str());
}
