// SPDX-License-Identifier: Apache-2.0
// Saves a module of LibTorch, and loads it into another one in place. Given a checkpoint that PyTorch wrote (DCP, of
// any number of ranks), fills the module from it, and saves it again for PyTorch.
// Usage: torch_module_checkpoint [CHECKPOINT]
#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <shardmesh/torch_tensor.hpp>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

import shardmesh;
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

int main(int argc, char** argv) {
  const std::filesystem::path folder = "torch_module.checkpoint";
  const model saved;
  const module_save_options options{.inside = {"model"}, .saving = {.output = {.overwrite = true}}};
  const save_report report = save_checkpoint(saved, folder, options);
  if (!report.ok()) return std::fprintf(stderr, "%s\n", to_string(report.problems.front()).c_str()), 1;

  model other;  // with other random elements
  const auto loaded = load_checkpoint(other, folder, {.inside = {"model"}});
  if (!loaded) return std::fprintf(stderr, "%s\n", to_string(loaded.error()).c_str()), 1;
  const long wrong = differing(saved, other);
  std::printf("%zu entries saved and loaded: %ld differ\n", loaded->loaded.size(), wrong);
  if (wrong != 0 || argc < 2) return wrong == 0 ? 0 : 1;

  const auto theirs = load_checkpoint(other, argv[1], {.inside = {"model"}});
  if (!theirs) return std::fprintf(stderr, "%s\n", to_string(theirs.error()).c_str()), 1;
  // The same, read as a state dict: each entry is at its path below "model".
  const auto read = read_state_dict<at::Tensor>(argv[1]);
  if (!read) return std::fprintf(stderr, "%s\n", to_string(read.error()).c_str()), 1;
  long others = 0;
  for (const auto& one : entries_of(other))
    others += at::ne(one.tensor, *read->find({"model", one.name})->tensor()).sum().item<long>();
  std::printf("%zu entries loaded from %s: %ld differ\n", theirs->loaded.size(), argv[1], others);
  const save_report again = save_checkpoint(other, folder, options);
  return others == 0 && again.ok() ? 0 : 1;
}
