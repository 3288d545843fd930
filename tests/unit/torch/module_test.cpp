// SPDX-License-Identifier: Apache-2.0
// Tests a torch::nn::Module as a state dict, and its checkpoints: saved and loaded in place, whole and in parts.
#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <shardmesh/torch_tensor.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

import shardmesh;
import shardmesh.fsdp;
import shardmesh.torch;

using namespace shardmesh;
using Catch::Matchers::ContainsSubstring;

static_assert(torch_module<torch::nn::Module> && torch_module<torch::nn::LinearImpl>);
static_assert(!torch_module<at::Tensor> && !torch_module<int>);

namespace {

struct small_model : torch::nn::Module {
  small_model() {
    first = register_module("first", torch::nn::Linear(5, 7));
    norm = register_module("norm", torch::nn::BatchNorm1d(7));
    last = register_module("last", torch::nn::Linear(torch::nn::LinearOptions(7, 3).bias(false)));
  }
  torch::nn::Linear first = nullptr, last = nullptr;
  torch::nn::BatchNorm1d norm = nullptr;
};

const std::vector<std::string> names{
    "first.weight", "first.bias",        "norm.weight",      "norm.bias",
    "last.weight",  "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"};

// The number of entries whose elements differ between two modules.
int differing(const torch::nn::Module& a, const torch::nn::Module& b) {
  int count = 0;
  const auto left = entries_of(a), right = entries_of(b);
  for (std::size_t i = 0; i < left.size(); ++i)
    count += left[i].name != right[i].name || !at::equal(left[i].tensor, right[i].tensor);
  return count;
}

void fill(torch::nn::Module& module, double value) {
  for (auto& one : entries_of(module)) one.tensor.detach().fill_(value);
}

struct temporary_folder {
  explicit temporary_folder(const std::string& name)
      : path(std::filesystem::temp_directory_path() / ("shardmesh_unit_torch_" + name)) {
    std::filesystem::remove_all(path);
  }
  ~temporary_folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

}  // namespace

TEST_CASE("a module's entries are its parameters and buffers by Python's names, without undefined ones") {
  const small_model model;
  std::vector<std::string> found;
  for (const auto& one : entries_of(model)) found.push_back(one.name);
  CHECK(found == names);
}

TEST_CASE("a module's state dict shares its elements") {
  small_model model;
  const auto state = state_of(model);
  REQUIRE(state);
  REQUIRE(state->size() == names.size());
  const at::Tensor* weight = state->find({"first.weight"})->tensor();
  CHECK(weight->data_ptr() == model.first->weight.data_ptr());
  CHECK(weight->requires_grad());
}

TEST_CASE("a state dict is put into a module in place, and autograd sees it") {
  small_model from, to;
  fill(from, 2);
  fill(to, 1);
  const void* const place = to.first->weight.data_ptr();
  const auto version = to.first->weight._version();
  const auto state = state_of(from);
  REQUIRE(put_state(to, *state));
  CHECK(differing(from, to) == 0);
  CHECK(to.first->weight.data_ptr() == place);
  CHECK(to.first->weight._version() > version);
}

TEST_CASE("a state dict that does not fit a module is refused, and nothing is copied") {
  small_model from, to;
  fill(from, 2);
  fill(to, 1);
  const auto refusal = [&](auto change) {
    auto state = state_of(from).value();
    change(state);
    const auto put = put_state(to, state);
    CHECK(to.first->weight.sum().item<double>() == 35);
    return put ? std::string("taken") : to_string(put.error());
  };
  CHECK_THAT(refusal([](auto& s) { REQUIRE(s.erase({"norm.bias"})); }),
             ContainsSubstring("norm.bias") && ContainsSubstring("lacks this entry"));
  CHECK_THAT(refusal([](auto& s) { REQUIRE(s.set({"extra"}, at::ones({1}))); }),
             ContainsSubstring("extra") && ContainsSubstring("no such entry"));
  CHECK_THAT(refusal([](auto& s) { REQUIRE(s.set({"last.weight"}, at::ones({7, 3}))); }),
             ContainsSubstring("last.weight") && ContainsSubstring("[3, 7]") && ContainsSubstring("[7, 3]"));
  CHECK_THAT(refusal([](auto& s) { REQUIRE(s.set({"last.weight"}, 3)); }),
             ContainsSubstring("last.weight") && ContainsSubstring("no plain tensor"));
  CHECK_THAT(refusal([](auto& s) { REQUIRE(s.set({"last.weight"}, at::ones({3, 7}).to_sparse())); }),
             ContainsSubstring("last.weight") && ContainsSubstring("sparse"));
}

TEST_CASE("a module is saved and loaded into another, in every format and below a key") {
  small_model saved;
  for (auto& one : entries_of(saved))
    one.tensor.detach().copy_(at::arange(one.tensor.numel()).view(one.tensor.sizes()));
  for (const target_format to : {target_format::dcp, target_format::safetensors})
    for (const path& inside : {path{}, path{"model"}}) {
      const temporary_folder folder("module");
      const auto report = save_checkpoint(saved, folder.path, {.inside = inside, .format = to});
      REQUIRE((report ? "" : to_string(report.error())) == "");
      CHECK(report->tensors == static_cast<std::int64_t>(names.size()));
      small_model other;
      const auto version = other.norm->running_mean._version();
      const auto loaded = load_checkpoint(other, folder.path, {.inside = inside});
      REQUIRE((loaded ? "" : to_string(loaded.error())) == "");
      CHECK(differing(saved, other) == 0);
      CHECK(other.norm->running_mean._version() > version);
    }
}

TEST_CASE("save and load take a module as they take any state") {
  small_model saved;
  for (auto& one : entries_of(saved))
    one.tensor.detach().copy_(at::arange(one.tensor.numel()).view(one.tensor.sizes()));
  const temporary_folder folder("module_as_state");
  const small_model& unchanged = saved;
  const auto report = save(folder.path, unchanged);
  REQUIRE((report ? "" : to_string(report.error())) == "");
  CHECK(report->tensors == static_cast<std::int64_t>(names.size()));
  small_model other;
  const auto version = other.norm->running_mean._version();
  const auto loaded = load(folder.path, other);
  REQUIRE((loaded ? "" : to_string(loaded.error())) == "");
  CHECK(differing(saved, other) == 0);
  CHECK(other.norm->running_mean._version() > version);
  static_assert(!has_writable_local_view<const small_model>);

  torch::nn::Module module;
  module.register_buffer("positions", at::ones({7, 5}).to_sparse());
  const temporary_folder refused("module_as_state_refused");
  const auto sparse = save(refused.path, module);
  REQUIRE_FALSE(sparse);
  CHECK_THAT(to_string(sparse.error()), ContainsSubstring("positions") && ContainsSubstring("sparse"));
}

TEST_CASE("a module that the checkpoint does not fit says which key, and where it meant to be") {
  const temporary_folder folder("module_errors");
  torch::nn::Sequential saved(torch::nn::Linear(5, 7));
  REQUIRE(save_checkpoint(*saved, folder.path, {.inside = {"model"}}));
  torch::nn::Sequential deeper(torch::nn::Linear(5, 7), torch::nn::Linear(7, 1)), wider(torch::nn::Linear(6, 7));
  const auto missing = load_checkpoint(*deeper, folder.path, {.inside = {"model"}});
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code == errc::missing_key);
  CHECK_THAT(to_string(missing.error()), ContainsSubstring("model.1.weight"));
  const auto misfit = load_checkpoint(*wider, folder.path, {.inside = {"model"}});
  REQUIRE_FALSE(misfit);
  CHECK(misfit.error().code == errc::shape_mismatch);
  CHECK_THAT(to_string(misfit.error()), ContainsSubstring("model.0.weight"));
  CHECK_FALSE(load_checkpoint(*saved, folder.path));
}

TEST_CASE("a rank's part of a module is loaded by placement rules, unevenly cut") {
  const temporary_folder folder("module_parts");
  torch::nn::Sequential saved(torch::nn::Linear(5, 7));
  const at::Tensor weight = at::arange(35, at::kFloat).view({7, 5}), bias = at::arange(7, at::kFloat);
  saved->parameters()[0].detach().copy_(weight);
  saved->parameters()[1].detach().copy_(bias);
  REQUIRE(save_checkpoint(*saved, folder.path));
  const device_mesh mesh = parse_mesh("tp=3").value();
  const auto rules = parse_placement_rules({".*weight=S(0)"}).value();
  const std::vector<std::int64_t> rows{3, 3, 1};
  for (std::int32_t rank = 0; rank < 3; ++rank) {
    torch::nn::Sequential part(torch::nn::Linear(5, rows[static_cast<std::size_t>(rank)]));
    part->parameters()[1].set_data(at::zeros({7}));
    const auto loaded = load_checkpoint(*part, folder.path, mesh, rules, rank);
    REQUIRE((loaded ? "" : to_string(loaded.error())) == "");
    CHECK(at::equal(part->parameters()[0], weight.narrow(0, 3 * rank, rows[static_cast<std::size_t>(rank)])));
    CHECK(at::equal(part->parameters()[1], bias));
  }
  torch::nn::Sequential whole(torch::nn::Linear(5, 7));
  const auto refused = load_checkpoint(*whole, folder.path, mesh, rules, 2);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::shape_mismatch);
  CHECK_THAT(to_string(refused.error()), ContainsSubstring("0.weight") && ContainsSubstring("[1, 5]") &&
                                             ContainsSubstring("[7, 5]") && ContainsSubstring("rank"));
  CHECK_FALSE(load_checkpoint(*whole, folder.path, mesh, rules, 3));
}

TEST_CASE("a checkpoint that PyTorch's ranks wrote is loaded into a module of LibTorch") {
  torch::nn::Linear up(10, 16);
  const auto checkpoint = std::filesystem::path(SHARDMESH_TEST_DATA) / "golden/fsdp2_tp_2x2/checkpoint";
  const auto loaded = load_checkpoint(*up, checkpoint, {.inside = {"model", "mlp", "up"}});
  REQUIRE((loaded ? "" : to_string(loaded.error())) == "");
  const auto reader = open_checkpoint(checkpoint).value();
  const host_tensor expected = load_tensor(*reader, "model.mlp.up.weight").value();
  CHECK(at::equal(up->weight, at::from_blob(const_cast<std::byte*>(expected.bytes().data()), {16, 10}, at::kFloat)));
}
