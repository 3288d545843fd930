// SPDX-License-Identifier: Apache-2.0
// Saves a module of LibTorch, and loads it into another one in place. Given a checkpoint that PyTorch wrote (DCP, of
// any number of ranks), fills the module from it, and saves it again for PyTorch.
// Usage: torch_module_checkpoint [CHECKPOINT]
#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <shardmesh/torch_tensor.hpp>
#include <shardmesh/try.hpp>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

import shardmesh;
import shardmesh.fsdp;
import shardmesh.torch;

using namespace shardmesh;

// The model of tests/data/golden/fsdp2_tp_2x2, whose checkpoint holds {"model": its state_dict(), ...}.
struct model : torch::nn::Module {
  struct mlp : torch::nn::Module {
    mlp() {
      register_module("up", torch::nn::Linear(10, 16));
      register_module("down", torch::nn::Linear(16, 6));
    }
  };
  model() {
    register_module("mlp", std::make_shared<mlp>());
    register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})));
    register_module("head", torch::nn::Linear(torch::nn::LinearOptions(6, 4).bias(false)));
  }
};

// Counts the elements of `a` that differ from those of `b`.
long differing(const torch::nn::Module& a, const torch::nn::Module& b) {
  long count = 0;
  const auto left = entries_of(a), right = entries_of(b);
  for (std::size_t i = 0; i < left.size(); ++i) count += at::ne(left[i].tensor, right[i].tensor).sum().item<long>();
  return count;
}

const std::filesystem::path folder = "torch_module.checkpoint";
const module_save_options saving{.inside = {"model"}, .saving = {.overwrite = true}};

// Saves `saved`, loads it into `other`, and returns the number of elements that differ.
result<long> save_and_load(const model& saved, model& other) {
  SHARDMESH_TRY(save_checkpoint(saved, folder, saving));
  SHARDMESH_TRY(const load_report loaded, load_checkpoint(other, folder, {.inside = {"model"}}));
  const long wrong = differing(saved, other);
  std::printf("%zu entries saved and loaded: %ld differ\n", loaded.loaded.size(), wrong);
  return wrong;
}

// Fills `other` from a checkpoint of PyTorch, compares it with the same checkpoint read as a state dict, in which each
// entry is at its path below "model", and saves it again. Returns the number of elements that differ.
result<long> take_over(const std::filesystem::path& theirs, model& other) {
  SHARDMESH_TRY(const load_report loaded, load_checkpoint(other, theirs, {.inside = {"model"}}));
  SHARDMESH_TRY(const auto read, read_state_dict<at::Tensor>(theirs));
  long wrong = 0;
  for (const auto& one : entries_of(other))
    wrong += at::ne(one.tensor, *read.find({"model", one.name})->tensor()).sum().item<long>();
  std::printf("%zu entries loaded from %s: %ld differ\n", loaded.loaded.size(), theirs.c_str(), wrong);
  SHARDMESH_TRY(save_checkpoint(other, folder, saving));
  return wrong;
}

int main(int argc, char** argv) {
  const model saved;
  model other;  // with other random elements
  auto wrong = save_and_load(saved, other);
  if (wrong && *wrong == 0 && argc > 1) wrong = take_over(argv[1], other);
  if (!wrong) std::fprintf(stderr, "%s\n", to_string(wrong.error()).c_str());
  return wrong && *wrong == 0 ? 0 : 1;
}
