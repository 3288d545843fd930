// SPDX-License-Identifier: Apache-2.0
// Tests modules of which each rank holds a part: saved on one mesh and loaded on another. Also tests errors that all
// ranks share.
#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <shardmesh/torch_tensor.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <random>
#include <random_seed.hpp>
#include <set>
#include <span>
#include <string>
#include <torch_parts.hpp>
#include <utility>
#include <vector>

import shardmesh;
import shardmesh.checkpoint;
import shardmesh.fsdp;
import shardmesh.torch;

using namespace shardmesh;
using torch_parts::part_of;
using torch_parts::same_bits;

namespace {

struct whole_entry {
  std::string name;
  at::Tensor value;
  bool is_buffer = false;
};

// Random bytes, among them infinities, NaNs with payloads, and denormals.
at::Tensor random_bytes(std::mt19937& dice, at::IntArrayRef sizes, at::ScalarType type) {
  at::Tensor made = at::empty(sizes, type);
  auto* const bytes = static_cast<std::uint8_t*>(made.mutable_data_ptr());
  for (std::size_t i = 0; i < made.nbytes(); ++i) bytes[i] = static_cast<std::uint8_t>(dice());
  return made;
}

std::vector<whole_entry> random_entries(std::mt19937& dice) {
  const auto size = [&](unsigned most) { return static_cast<std::int64_t>(dice() % (most + 1)); };
  return {{"weight", random_bytes(dice, {size(9), size(9)}, at::kFloat)},
          {"bias", random_bytes(dice, {size(9)}, at::kBFloat16)},
          {"scale", random_bytes(dice, {}, at::kDouble)},
          {"table", random_bytes(dice, {size(5), size(4), size(6)}, at::kLong), true}};
}

// One way to distribute the entries over ranks.
struct dealing {
  device_mesh mesh;
  std::vector<std::vector<placement>> placements;  // for each entry
  std::vector<placement_rule> rules;

  layout layout_of(const whole_entry& entry, std::size_t number) const {
    const at::IntArrayRef sizes = entry.value.sizes();
    return layout::make(mesh, placements[number], extents(std::span(sizes.data(), sizes.size()))).value();
  }
};

dealing random_dealing(std::mt19937& dice, const std::vector<whole_entry>& entries) {
  const std::vector<std::string> meshes{"1", "2", "3", "dp=2,tp=2", "tp=2,dp=3", "5"};
  dealing made{parse_mesh(meshes[dice() % meshes.size()]).value(), {}, {}};
  for (const whole_entry& entry : entries) {
    const auto dims = static_cast<std::uint32_t>(entry.value.dim());
    std::vector<placement> placements;
    for (std::size_t m = 0; m < made.mesh.rank(); ++m) {
      const auto dim = dims == 0 ? 0 : static_cast<std::int32_t>(dice() % (dims + 1));
      placements.push_back(dim == static_cast<std::int32_t>(dims) ? placement::replicate() : placement::shard(dim));
    }
    // Cut as by FSDP over tensor parallelism.
    if (placements.size() == 2 && placements[0].is_shard() && placements[0] == placements[1])
      placements[0] = placement::strided_shard(placements[0].dim, made.mesh.sizes()[1]);
    made.rules.push_back({key_pattern::exactly("model." + entry.name), placements});
    made.placements.push_back(std::move(placements));
  }
  return made;
}

struct parts : torch::nn::Module {
  void add(const std::string& name, at::Tensor part, bool is_buffer) {
    if (is_buffer)
      register_buffer(name, std::move(part));
    else
      register_parameter(name, std::move(part), false);
  }
};

parts module_of(const std::vector<whole_entry>& entries, const dealing& dealt, std::int32_t rank) {
  parts made;
  for (std::size_t i = 0; i < entries.size(); ++i)
    made.add(entries[i].name, part_of(entries[i].value, dealt.layout_of(entries[i], i), rank), entries[i].is_buffer);
  return made;
}

struct temporary_folder {
  explicit temporary_folder(const std::string& name)
      : path(std::filesystem::temp_directory_path() / ("shardmesh_unit_torch_" + name)) {
    std::filesystem::remove_all(path);
  }
  ~temporary_folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

// Runs the body on every rank; returns the distinct error texts.
std::set<std::string> texts_of_ranks(std::int32_t ranks, const std::function<std::string(any_communicator&)>& body) {
  std::mutex lock;
  std::set<std::string> texts;
  const auto ran = run_ranks(ranks, [&](any_communicator& comm) -> result<void> {
    std::string text = body(comm);
    const std::lock_guard locked(lock);
    texts.insert(std::move(text));
    return {};
  });
  REQUIRE(ran);
  return texts;
}

// All problems of a call, one line each; empty if it worked.
template <class Report>
std::string text_of(const result<Report>& report) {
  std::string text;
  if (report) return text;
  for (const error& e : report.error().problems()) text += to_string(e) + "\n";
  return text;
}

parts module_of_rows(std::int64_t rows) {
  parts made;
  made.add("weight", at::ones({rows, 5}), false);
  return made;
}

std::vector<placement_rule> rows_rule() {
  return parse_placement_rules({".*weight=S(0)"}).value();
}

}  // namespace

TEST_CASE("a module that ranks of one mesh save together is loaded on another, bit for bit") {
  const auto seed = static_cast<std::uint32_t>(random_seed::seed());
  std::mt19937 dice(seed);
  for (std::uint64_t round = 0; round < random_seed::rounds(40); ++round) {
    INFO("SHARDMESH_SEED=" << seed << ", round " << round);
    const temporary_folder folder("module_ranks");
    const std::vector<whole_entry> entries = random_entries(dice);
    const dealing saved = random_dealing(dice, entries), loaded = random_dealing(dice, entries);
    std::int64_t size_bytes = 0;
    for (const whole_entry& one : entries) size_bytes += static_cast<std::int64_t>(one.value.nbytes());
    const auto save_texts = texts_of_ranks(static_cast<std::int32_t>(saved.mesh.size()), [&](any_communicator& comm) {
      const parts mine = module_of(entries, saved, comm.rank());
      const auto report = save_checkpoint(mine, folder.path, saved.mesh, saved.rules, comm, {.inside = {"model"}});
      if (!report) return text_of(report);
      if (report->bytes != size_bytes) return std::to_string(report->bytes) + " bytes were written";
      return report->tensors == 4 ? std::string() : std::to_string(report->tensors) + " tensors";
    });
    REQUIRE(save_texts == std::set<std::string>{""});
    const auto load_texts = texts_of_ranks(static_cast<std::int32_t>(loaded.mesh.size()), [&](any_communicator& comm) {
      parts mine = module_of(entries, loaded, comm.rank());
      for (auto& one : entries_of(mine)) one.tensor.zero_();
      const auto version = entries_of(mine)[0].tensor._version();
      const auto report = load_checkpoint(mine, folder.path, loaded.mesh, loaded.rules, comm, {.inside = {"model"}});
      if (!report) return text_of(report);
      const parts expected = module_of(entries, loaded, comm.rank());
      const auto found = entries_of(mine), wanted = entries_of(expected);
      for (std::size_t i = 0; i < wanted.size(); ++i)
        if (found[i].name != wanted[i].name || !same_bits(found[i].tensor, wanted[i].tensor))
          return wanted[i].name + " differs on rank " + std::to_string(comm.rank());
      return found[0].tensor._version() > version ? std::string() : "autograd was not told";
    });
    REQUIRE(load_texts == std::set<std::string>{""});
  }
}

TEST_CASE("parts that no whole tensor gives are refused on every rank, and nothing is written") {
  const temporary_folder folder("module_ranks_misfit");
  const device_mesh mesh = parse_mesh("tp=2").value();
  const auto texts = texts_of_ranks(2, [&](any_communicator& comm) {
    return text_of(save_checkpoint(module_of_rows(comm.rank() == 0 ? 3 : 4), folder.path, mesh, rows_rule(), comm));
  });
  CHECK(texts == std::set<std::string>{"weight: the module's tensor does not have the shape of this rank's part of "
                                       "[7, 5] on tp=2 as S(0) (rank 0): expected [4, 5], found [3, 5]\n"});
  CHECK_FALSE(std::filesystem::exists(folder.path));
}

TEST_CASE("ranks that place a module differently, or on another mesh, are told so on every rank") {
  const temporary_folder folder("module_ranks_disagree");
  const auto texts = [&](const std::function<result<save_report>(any_communicator&)>& save) {
    return texts_of_ranks(2, [&](any_communicator& comm) { return text_of(save(comm)); });
  };
  const auto rows = rows_rule();
  const device_mesh mesh = parse_mesh("tp=2").value();
  CHECK(texts([&](any_communicator& comm) {
          const std::vector<placement_rule> none;
          return save_checkpoint(module_of_rows(3), folder.path, mesh, comm.rank() == 1 ? none : rows, comm);
        }) == std::set<std::string>{
                  "weight: ranks disagree on 1 of 2 entries of a module: 'weight' is float32 of 2 dimensions, placed "
                  "S(0) on rank 0, float32 of 2 dimensions, placed R on rank 1 (rank 1): expected float32 of 2 "
                  "dimensions, placed S(0) on rank 0, found float32 of 2 dimensions, placed R on rank 1\n"});
  CHECK(texts([&](any_communicator& comm) {
          const device_mesh other = parse_mesh(comm.rank() == 1 ? "dp=2" : "tp=2").value();
          return save_checkpoint(module_of_rows(3), folder.path, other, rows, comm);
        }) == std::set<std::string>{"(mesh): ranks disagree on 1 of 2 entries of a module: '(mesh)' is tp=2 on rank 0, "
                                    "dp=2 on rank 1 (rank 1): expected tp=2 on rank 0, found dp=2 on rank 1\n"});
  CHECK(texts([&](any_communicator& comm) {
          return save_checkpoint(module_of_rows(3), folder.path, parse_mesh("3").value(), rows, comm);
        }) ==
        std::set<std::string>{
            "the mesh 3 does not have the communicator's ranks (rank 0): expected 2 ranks, found 3, up to rank 2\n"});
  CHECK(texts([&](any_communicator& comm) {
          return save_checkpoint(module_of_rows(3), folder.path, parse_mesh("1").value(), rows, comm);
        }) ==
        std::set<std::string>{
            "the mesh 1 does not have the communicator's ranks (rank 0): expected 2 ranks, found 1, up to rank 0\n"});
  CHECK_FALSE(std::filesystem::exists(folder.path));
}

TEST_CASE("what one rank cannot load is an error on every rank, naming entry and rank") {
  const temporary_folder folder("module_ranks_load");
  const device_mesh mesh = parse_mesh("tp=2").value();
  REQUIRE(save_checkpoint(module_of_rows(7), folder.path));
  const auto texts = [&](const std::function<result<load_report>(any_communicator&)>& load) {
    return texts_of_ranks(2, [&](any_communicator& comm) { return text_of(load(comm)); });
  };
  CHECK(texts([&](any_communicator& comm) {
          parts mine = module_of_rows(4);
          return load_checkpoint(mine, folder.path, mesh, rows_rule(), comm);
        }) ==
        std::set<std::string>{folder.path.string() +
                              ": weight: the module's tensor does not have the shape of this rank's part of [7, 5] "
                              "on tp=2 as S(0) (rank 1): expected [3, 5], found [4, 5]\n"});
  CHECK(texts([&](any_communicator& comm) {
          parts mine = module_of_rows(comm.rank() == 0 ? 4 : 3);
          return load_checkpoint(mine, folder.path, mesh, rows_rule(), comm, {.inside = {"model"}});
        }) ==
        std::set<std::string>{folder.path.string() +
                              ": model.weight: the checkpoint has no such tensor (rank 0); did you mean weight?\n"});
  CHECK(texts([&](any_communicator& comm) {
          parts mine = module_of_rows(7);
          return load_checkpoint(mine, folder.path, parse_mesh("1").value(), rows_rule(), comm);
        }) == std::set<std::string>{"the rank is not in the mesh 1 (rank 1)\n"});
  CHECK(texts([&](any_communicator& comm) {
          parts mine = module_of_rows(comm.rank() == 0 ? 4 : 3);
          return load_checkpoint(mine, folder.path / "nothing", mesh, rows_rule(), comm);
        }) == std::set<std::string>{folder.path.string() + "/nothing: does not exist (rank 0)\n"});
}
