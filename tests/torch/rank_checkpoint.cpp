// SPDX-License-Identifier: Apache-2.0
// C++ ranks, which are threads or MPI processes, each save or load their part of the module of checkpoints.py:
//   rank_checkpoint (threads N | mpi) (save | load) FOLDER MESH RULE...
// Exits with 0 if every rank succeeds.
#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <shardmesh/torch_tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <torch_parts.hpp>
#include <utility>
#include <vector>

import shardmesh;
import shardmesh.checkpoint;
import shardmesh.fsdp;
import shardmesh.torch;
#ifdef SHARDMESH_TEST_MPI
import shardmesh.mpi;
#endif

using namespace shardmesh;

namespace {

struct whole_entry {
  std::string name;
  at::Tensor value;
};

// Each entry's bytes follow a formula that checkpoints.py shares; NaNs are among them.
at::Tensor filled(const std::string& name, at::IntArrayRef sizes, at::ScalarType type) {
  at::Tensor made = at::empty(sizes, type);
  auto* const bytes = static_cast<std::uint8_t*>(made.mutable_data_ptr());
  for (std::size_t i = 0; i < made.nbytes(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 151 + name.size() * 29 + 7);
  return made;
}

std::vector<whole_entry> whole_entries() {
  std::vector<whole_entry> all;
  const auto add = [&](const std::string& name, at::IntArrayRef sizes, at::ScalarType type) {
    all.push_back({name, filled(name, sizes, type)});
  };
  add("mlp.up.weight", {16, 10}, at::kFloat);
  add("mlp.up.bias", {16}, at::kFloat);
  add("mlp.down.weight", {6, 16}, at::kBFloat16);
  add("mlp.down.bias", {6}, at::kBFloat16);
  add("norm.weight", {6}, at::kFloat);
  add("head.weight", {9, 6}, at::kDouble);
  add("steps", {3}, at::kLong);
  return all;
}

// A module that registers entries at any depth below it by their full names.
struct tree : torch::nn::Module {
  void add(std::string_view name, at::Tensor value) {
    const std::size_t dot = name.find('.');
    if (dot == std::string_view::npos) {
      register_parameter(std::string(name), std::move(value), false);
      return;
    }
    const std::string child(name.substr(0, dot));
    const auto children = named_children();
    const auto* const known = children.find(child);
    const auto below =
        known ? std::dynamic_pointer_cast<tree>(*known) : register_module(child, std::make_shared<tree>());
    below->add(name.substr(dot + 1), std::move(value));
  }
};

struct task {
  bool saves = false;
  std::filesystem::path folder;
  device_mesh mesh;
  std::vector<placement_rule> rules;
};

result<std::unique_ptr<tree>> module_of(const std::vector<whole_entry>& entries, const task& t, std::int32_t rank) {
  std::vector<keyed_shape> shapes;
  for (const whole_entry& one : entries)
    shapes.push_back({"model." + one.name, extents(std::span(one.value.sizes().data(), one.value.sizes().size()))});
  auto placed = resolve_placements(shapes, t.mesh, t.rules);
  if (!placed.ok()) return placed.errors.front();
  auto made = std::make_unique<tree>();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto laid = stored_layout(t.mesh, placed.placements[i], shapes[i].shape);
    if (!laid) return laid.error();
    made->add(entries[i].name, torch_parts::part_of(entries[i].value, *laid, rank));
  }
  return made;
}

result<void> act(const task& t, communicator_ref comm) {
  const std::vector<whole_entry> entries = whole_entries();
  auto mine = module_of(entries, t, comm.rank());
  if (!mine) return mine.error();
  if (t.saves) {
    const auto report = save_checkpoint(**mine, t.folder, t.mesh, t.rules, comm, {.inside = {"model"}});
    return report ? result<void>() : report.error();
  }
  const auto expected = module_of(entries, t, comm.rank());
  for (auto& one : entries_of(**mine)) one.tensor.zero_();
  const auto report = load_checkpoint(**mine, t.folder, t.mesh, t.rules, comm, {.inside = {"model"}});
  if (!report) return report.error();
  const auto found = entries_of(**mine), wanted = entries_of(**expected);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (!torch_parts::same_bits(found[i].tensor, wanted[i].tensor))
      return fail(errc::checksum_mismatch, "other elements").with_key(found[i].name).with_rank(comm.rank());
  return {};
}

result<void> run(const std::string& ranks, const task& t) {
#ifdef SHARDMESH_TEST_MPI
  if (ranks == "mpi") {
    auto comm = mpi_communicator::world();
    if (!comm) return comm.error();
    return act(t, *comm);
  }
#endif
  return run_ranks(std::stoi(ranks), [&](any_communicator& comm) { return act(t, comm); });
}

result<void> run(std::vector<std::string> words) {
  const std::string ranks = words.at(0) == "mpi" ? "mpi" : words.at(1);
  words.erase(words.begin(), words.begin() + (ranks == "mpi" ? 1 : 2));
  auto mesh = parse_mesh(words.at(2));
  if (!mesh) return mesh.error();
  const std::vector<std::string_view> texts(words.begin() + 3, words.end());
  auto rules = parse_placement_rules(texts);
  if (!rules) return rules.error();
  return run(ranks, {words.at(0) == "save", words.at(1), *std::move(mesh), *std::move(rules)});
}

}  // namespace

int main(int argc, char** argv) {
  const auto done = run({argv + 1, argv + argc});
  if (!done) std::fprintf(stderr, "%s\n", to_string(done.error()).c_str());
  return done ? 0 : 1;
}
