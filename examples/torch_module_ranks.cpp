// SPDX-License-Identifier: Apache-2.0
// Ranks that each hold the rows of a module save it together; a larger number of ranks loads it sharded by columns.
// The ranks are threads; over MPI or a process group of torch.distributed, only the communicator differs.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>
#include <torch/nn/module.h>
#include <shardmesh/torch_tensor.hpp>
#include <shardmesh/try.hpp>

#include <cstdio>
#include <filesystem>

import shardmesh;
import shardmesh.torch;

using namespace shardmesh;

// A rank's part of a matrix of 5 rows and 7 columns.
struct part : torch::nn::Module {
  explicit part(const at::Tensor& mine) { register_parameter("weight", mine.clone()); }
  at::Tensor weight() const { return named_parameters()["weight"]; }
};
at::Tensor whole() {
  return at::arange(35, at::kFloat).view({5, 7});
}
const std::filesystem::path folder = "torch_module_ranks.checkpoint";

result<void> save_rows(communicator_ref comm) {
  const device_mesh mesh = parse_mesh("tp=2").value();
  const auto rules = parse_placement_rules({".*weight=S(0)"}).value();
  const part module(comm.rank() == 0 ? whole().narrow(0, 0, 3) : whole().narrow(0, 3, 2));
  const module_rank_save_options options{.saving = {.overwrite = true}};
  SHARDMESH_TRY(save_checkpoint(module, folder, mesh, rules, comm, options));
  return {};
}

result<void> load_columns(communicator_ref comm) {
  const device_mesh mesh = parse_mesh("tp=3").value();
  const auto rules = parse_placement_rules({".*weight=S(1)"}).value();
  const at::Tensor columns = whole().narrow(1, 3 * comm.rank(), comm.rank() == 2 ? 1 : 3);
  part module(at::zeros_like(columns));
  SHARDMESH_TRY(load_checkpoint(module, folder, mesh, rules, comm));
  if (!at::equal(module.weight(), columns)) return fail(errc::checksum_mismatch, "these are not this rank's columns");
  return {};
}

int main() {
  auto ran = run_ranks(2, [](any_communicator& comm) { return save_rows(comm); });
  if (ran) ran = run_ranks(3, [](any_communicator& comm) { return load_columns(comm); });
  std::printf("%s\n", ran ? "2 ranks saved rows, 3 ranks loaded columns" : to_string(ran.error()).c_str());
  return ran ? 0 : 1;
}
