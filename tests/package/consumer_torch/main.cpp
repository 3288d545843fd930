// SPDX-License-Identifier: Apache-2.0
// Saves and loads a LibTorch module in a program that was built against the installed package.
#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>
#include <shardmesh/torch_tensor.hpp>

#include <cstdio>

import shardmesh;
import shardmesh.torch;

int main() {
  const torch::nn::Linear saved(3, 2);
  torch::nn::Linear loaded(3, 2);
  if (!shardmesh::save_checkpoint(*saved, "consumer.checkpoint", {.saving = {.overwrite = true}})) return 1;
  const auto report = shardmesh::load_checkpoint(*loaded, "consumer.checkpoint");
  const bool equal = report && at::equal(saved->weight, loaded->weight) && at::equal(saved->bias, loaded->bias);
  std::printf("%s: %s\n", equal ? "equal" : "not equal",
              shardmesh::to_string(shardmesh::view_of(loaded->weight).sizes).c_str());
  return equal ? 0 : 1;
}
