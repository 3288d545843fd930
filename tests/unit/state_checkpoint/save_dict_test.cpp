// SPDX-License-Identifier: Apache-2.0
// `save` and `load` of state dicts and of maps to tensors: one process, and two ranks. The calls on a `local_state` are
// tested in tests/distributed.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <filesystem>
#include <map>
#include <numeric>
#include <safetensors_files.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "small_states.hpp"
import shardmesh.checkpoint_core;
import shardmesh.collective_checkpoint;
import shardmesh.state_checkpoint;

using namespace shardmesh;
using namespace small_states;
namespace fs = std::filesystem;

TEST_CASE("one process saves a state dict and loads it in place: tensors, plain values, and lists") {
  const safetensors_files::temporary_folder scratch;
  const dict saved = make_dict(true);
  const auto report = save(scratch.path() / "dcp", saved, quick);
  INFO(text_of(report));
  REQUIRE(report);
  CHECK(report->tensors == 1);
  CHECK(report->objects == 2);
  dict loaded = make_dict(false);
  const auto read = load(scratch.path() / "dcp", loaded);
  INFO(text_of(read));
  REQUIRE(read);
  CHECK(read->loaded == std::vector<std::string>{"model.w", "step", "betas"});
  check_is_filled(loaded);
}

TEST_CASE("maps from text to tensors are saved and loaded as they are") {
  const auto numbered = [](std::int64_t count, float first) {
    host_tensor made = host_tensor::zeros(dtype::float32, {count}).value();
    std::iota(made.values<float>().begin(), made.values<float>().end(), first);
    return made;
  };
  const auto values_of = [](const host_tensor& tensor) {
    const auto values = tensor.values<float>();
    return floats(values.begin(), values.end());
  };
  const safetensors_files::temporary_folder scratch;
  std::unordered_map<std::string, host_tensor> saved;
  for (const char* const name : {"d", "b.weight", "a", "c"})
    saved.emplace(name, numbered(3, static_cast<float>(saved.size()) * 10));
  const std::unordered_map<std::string, host_tensor>& unchanged = saved;
  const auto report = save(scratch.path() / "dcp", unchanged, quick);
  INFO(text_of(report));
  REQUIRE(report);
  CHECK(report->tensors == 4);

  std::map<std::string, host_tensor> loaded;
  for (const auto& [name, tensor] : saved) loaded.emplace(name, numbered(3, -100));
  const auto read = load(scratch.path() / "dcp", loaded);
  INFO(text_of(read));
  REQUIRE(read);
  CHECK(read->loaded == std::vector<std::string>{"a", "b.weight", "c", "d"});
  for (const auto& [name, tensor] : saved) CHECK(values_of(loaded.at(name)) == values_of(tensor));

  // On two ranks, which hold the same map, and a key that the checkpoint lacks.
  CHECK(on_two_ranks([&](any_communicator& comm) {
          return text_of(save(scratch.path() / "ranks", unchanged, comm, quick));
        }) == success);
  loaded.emplace("e", numbered(3, 0));
  const auto missing = load(scratch.path() / "ranks", loaded);
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code == errc::missing_key);
  CHECK(missing.error().key == "e");
}

TEST_CASE("the errors of one process name the key or the file, and no rank") {
  const safetensors_files::temporary_folder scratch;
  dict state = make_dict(false);
  const auto nothing = load(scratch.path() / "nowhere", state);
  REQUIRE_FALSE(nothing);
  CHECK(to_string(nothing.error()) == (scratch.path() / "nowhere").string() + ": does not exist");
  REQUIRE(save(scratch.path() / "dcp", state, quick));
  const auto again = save(scratch.path() / "dcp", state, quick);
  REQUIRE_FALSE(again);
  CHECK(again.error().code == errc::destination_exists);
  CHECK(again.error().ranks.empty());
  state.set({"model", "more"}, host_tensor::zeros(dtype::float32, {2}).value()).value();
  const auto missing = load(scratch.path() / "dcp", state);
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code == errc::missing_key);
  CHECK(missing.error().key == "model.more");
  CHECK(missing.error().ranks.empty());
}

TEST_CASE("a Partial dtensor is refused with its key, before a file exists") {
  const safetensors_files::temporary_folder scratch;
  const std::int64_t two[] = {2};
  const layout partial =
      layout::make(device_mesh::make(two).value(), {placement::partial(reduce_op::sum)}, {3}).value();
  dict state;
  auto grad = dtensor<host_tensor>::make(partial, 0, host_tensor::zeros(dtype::float32, {3}).value());
  state.set({"grad"}, std::move(grad).value()).value();
  const auto report = save(scratch.path() / "dcp", state, quick);
  REQUIRE_FALSE(report);
  CHECK(report.error().code == errc::unsupported);
  CHECK(report.error().key == "grad");
  CHECK_FALSE(fs::exists(scratch.path() / "dcp"));
}

TEST_CASE("two ranks save a state dict by rows, and load it by columns") {
  const safetensors_files::temporary_folder scratch;
  const auto state_of = [](any_communicator& comm, std::int32_t dim, bool is_filled) {
    const std::int64_t sizes[] = {comm.size()};
    const layout cut = layout::make(device_mesh::make(sizes).value(), {placement::shard(dim)}, {4, 2}).value();
    host_tensor local = host_tensor::zeros(dtype::float32, cut.local_shape(comm.rank())).value();
    if (is_filled)
      std::iota(local.values<float>().begin(), local.values<float>().end(), static_cast<float>(4 * comm.rank()));
    dict state;
    state.set({"w"}, dtensor<host_tensor>::make(cut, comm.rank(), std::move(local)).value()).value();
    state.set({"step"}, is_filled ? 7 : 0).value();
    return state;
  };
  const auto said = on_two_ranks([&](any_communicator& comm) -> std::string {
    const dict saved = state_of(comm, 0, true);
    if (const auto report = save(scratch.path() / "dcp", saved, comm, quick); !report) return text_of(report);
    dict loaded = state_of(comm, 1, false);
    if (const auto report = load(scratch.path() / "dcp", loaded, comm); !report) return text_of(report);
    const auto column = std::as_const(loaded).find({"w"})->dtensor()->local().values<float>();
    const auto first = static_cast<float>(comm.rank());
    if (floats(column.begin(), column.end()) != floats{first, first + 2, first + 4, first + 6}) return "other values";
    return *loaded.find({"step"})->integer() == 7 ? "" : "another step";
  });
  CHECK(said == success);
}
