// SPDX-License-Identifier: Apache-2.0
// `save` and `load` of FSDP models, from their flat shards and into them.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <numeric>
#include <safetensors_files.hpp>
#include <string>
#include <utility>
#include <vector>

#include "small_states.hpp"
import shardmesh.checkpoint_core;
import shardmesh.collective_checkpoint;
import shardmesh.state_checkpoint;

using namespace shardmesh;
using namespace small_states;

TEST_CASE("an FSDP model is saved from its flat shards and loaded into them") {
  const safetensors_files::temporary_folder scratch;
  const auto said = on_two_ranks([&](any_communicator& comm) -> std::string {
    const auto flat = flat_parameter::make({{"weight", {5, 3}, {}}, {"bias", {5}, {}}}, {}, {.group_size = 2}).value();
    const auto model_in = [&](floats& memory) {
      memory.resize(static_cast<std::size_t>(flat.sharded_numel()));
      fsdp_model model;
      model.units.push_back(
          {"layer", flat, shard_group::world(2),
           tensor_view{reinterpret_cast<std::byte*>(memory.data()), dtype::float32, {}, {flat.sharded_numel()}, {1}}});
      return model;
    };
    floats from, to;
    const fsdp_model saved = model_in(from), loaded = model_in(to);
    std::iota(from.begin(), from.end(), static_cast<float>(100 * comm.rank()));
    if (const auto report = save(scratch.path() / "dcp", saved, comm, quick); !report) return text_of(report);
    if (const auto report = load(scratch.path() / "dcp", loaded, comm); !report) return text_of(report);
    return to == from ? "" : "other values";
  });
  CHECK(said == success);
}

TEST_CASE("a tied parameter is loaded under the name that the checkpoint has") {
  const safetensors_files::temporary_folder scratch;
  dict stored;
  host_tensor values = host_tensor::zeros(dtype::float32, {4}).value();
  std::iota(values.values<float>().begin(), values.values<float>().end(), 1.0F);
  stored.set({"again"}, std::move(values)).value();
  REQUIRE(save(scratch.path() / "dcp", stored, quick));
  floats memory(4);
  fsdp_model model;
  model.units.push_back({"", flat_parameter::make({{"w", {4}, {}}}, {{"again", "w"}}).value(), shard_group::world(1),
                         tensor_view{reinterpret_cast<std::byte*>(memory.data()), dtype::float32, {}, {4}, {1}}});
  const auto report = load(scratch.path() / "dcp", model);
  INFO(text_of(report));
  REQUIRE(report);
  CHECK(memory == floats{1, 2, 3, 4});
}
