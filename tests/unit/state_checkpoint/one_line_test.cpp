// SPDX-License-Identifier: Apache-2.0
// Tests `save`, `start_save`, and `load` of states with a local view, in one process and on several ranks: state dicts,
// FSDP models, and a user's own types. The calls on a `local_state` are tested in tests/distributed.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <safetensors_files.hpp>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

import shardmesh.checkpoint_core;
import shardmesh.collective_checkpoint;
import shardmesh.state_checkpoint;

namespace user {

/// Two rows of "w" on each rank, and the counter "step".
struct trainer {
  std::int32_t rank = 0, ranks = 1;
  std::vector<float> rows = std::vector<float>(2 * 3);
  std::int64_t step = 0;

  static trainer filled(std::int32_t rank, std::int32_t ranks) {
    trainer made{rank, ranks};
    std::iota(made.rows.begin(), made.rows.end(), static_cast<float>(6 * rank));
    made.step = 7;
    return made;
  }
};

shardmesh::result<shardmesh::local_state> local_view(trainer& mine) {
  const shardmesh::tensor_view memory{
      reinterpret_cast<std::byte*>(mine.rows.data()), shardmesh::dtype::float32, {}, {2, 3}, {3, 1}};
  shardmesh::local_state part;
  part.tensors.push_back(
      {{"w"}, {2 * mine.ranks, 3}, shardmesh::dtype::float32, {{{{2 * mine.rank, 0}, {2, 3}}, memory}}});
  part.objects.push_back({{"step"}, {}, {mine.step}});
  return part;
}

shardmesh::result<void> set_objects(trainer& mine, std::span<const shardmesh::local_state_object> objects) {
  for (const shardmesh::local_state_object& object : objects) {
    const auto* const step = std::get_if<std::int64_t>(&object.leaves.front());
    if (step == nullptr) return shardmesh::fail(shardmesh::errc::dtype_mismatch, "is no integer").with_key("step");
    mine.step = *step;
  }
  return {};
}

/// A trainer that cannot put its objects back.
struct forgetful {
  trainer mine;
};
shardmesh::result<shardmesh::local_state> local_view(forgetful& state) {
  return local_view(state.mine);
}

/// A trainer whose view fails on rank 1, with an error or with an exception.
struct failing {
  trainer mine;
  bool throws = false;
};
shardmesh::result<shardmesh::local_state> local_view(failing& state) {
  if (state.mine.rank == 1) {
    if (state.throws) throw std::runtime_error("a lazy tensor");
    return shardmesh::fail(shardmesh::errc::unsupported, "is lazy").with_key("w");
  }
  return local_view(state.mine);
}
shardmesh::result<void> set_objects(failing& state, std::span<const shardmesh::local_state_object> objects) {
  return set_objects(state.mine, objects);
}

/// A tensor whose saved values are a copy in the view.
struct doubled {
  std::vector<float> values;
};
struct doubled_view {
  std::vector<float> copy;
  shardmesh::tensor_view memory;

  shardmesh::result<shardmesh::const_local_state> to_save() {
    shardmesh::const_local_state part;
    shardmesh::const_tensor_view view = memory;
    view.data = reinterpret_cast<const std::byte*>(copy.data());
    part.tensors.push_back({{"v"}, memory.sizes, memory.type, {{shardmesh::box::whole(memory.sizes), view}}});
    return part;
  }
  shardmesh::local_state to_load(const std::function<bool(std::string_view)>&) const {
    shardmesh::local_state part;
    part.tensors.push_back({{"v"}, memory.sizes, memory.type, {{shardmesh::box::whole(memory.sizes), memory}}});
    return part;
  }
};
/// A view that asks for the rank; every rank has the same values.
shardmesh::result<doubled_view> local_view(doubled& state, std::int32_t rank) {
  if (rank < 0) return shardmesh::fail(shardmesh::errc::out_of_bounds, "no such rank");
  const auto count = static_cast<std::int64_t>(state.values.size());
  doubled_view made{state.values,
                    {reinterpret_cast<std::byte*>(state.values.data()), shardmesh::dtype::float32, {}, {count}, {1}}};
  for (float& value : made.copy) value *= 2;
  return made;
}

}  // namespace user

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

using dict = state_dict<host_tensor>;
using floats = std::vector<float>;

const rank_save_options quick{.durable = false};

// "model.w" [2, 3] of 0 to 5, "step" 7, and the list "betas"; or the same of zeros.
dict make_dict(bool is_filled) {
  dict state;
  host_tensor w = host_tensor::zeros(dtype::float32, {2, 3}).value();
  if (is_filled) std::iota(w.values<float>().begin(), w.values<float>().end(), 0.0F);
  state.set({"model", "w"}, std::move(w)).value();
  state.set({"step"}, is_filled ? 7 : 0).value();
  state.set({"betas", 0}, is_filled ? 0.9 : 0.0).value();
  state.set({"betas", 1}, is_filled ? 0.99 : 0.0).value();
  return state;
}

void check_is_filled(const dict& state) {
  const auto w = std::as_const(*state.find({"model", "w"})->tensor()).values<float>();
  CHECK(floats(w.begin(), w.end()) == floats{0, 1, 2, 3, 4, 5});
  CHECK(*state.find({"step"})->integer() == 7);
  CHECK(*state.find({"betas", 1})->floating() == 0.99);
}

std::string text_of(const auto& done) {
  return done ? "" : to_string(done.error());
}

// The error of `call(comm)` on each rank of two; empty for success.
std::vector<std::string> on_two_ranks(function_ref<std::string(any_communicator&)> call) {
  std::vector<std::string> said(2);
  const auto ran = run_ranks(2, [&](any_communicator& comm) -> result<void> {
    said[static_cast<std::size_t>(comm.rank())] = call(comm);
    return {};
  });
  INFO(text_of(ran));
  REQUIRE(ran);
  return said;
}

const std::vector<std::string> success(2);

}  // namespace

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

TEST_CASE("one process saves a temporary state, in another format, and through a selection") {
  const safetensors_files::temporary_folder scratch;
  const fs::path file = scratch.path() / "model.safetensors";
  rank_save_options options = quick;
  options.format = target_format::safetensors;
  options.selection.only = {key_pattern::compile("model\\..*").value()};
  const auto report = save(file, make_dict(true), options);
  INFO(text_of(report));
  REQUIRE(report);
  const auto opened = open(file);
  REQUIRE(opened);
  CHECK(opened->format() == checkpoint_format::safetensors);
  REQUIRE(opened->tensors().size() == 1);
  CHECK(opened->tensors().front().key == "model.w");
  CHECK(opened->objects().empty());
}

TEST_CASE("one process writes the formats that ranks do not write together") {
  const safetensors_files::temporary_folder scratch;
  const dict state = make_dict(true);
  for (const auto& [to, name] : {std::pair{target_format::pt, "model.pt"},
                                 std::pair{target_format::torch_checkpointing, "torch_checkpointing"}}) {
    CAPTURE(name);
    rank_save_options options = quick;
    options.format = to;
    const auto report = save(scratch.path() / name, state, options);
    INFO(text_of(report));
    REQUIRE(report);
    CHECK(report->tensors == 1);
    const auto opened = open(scratch.path() / name);
    INFO(text_of(opened));
    REQUIRE(opened);
    REQUIRE(opened->tensors().size() == 1);
    CHECK(opened->tensors().front().key == "model.w");
    const auto read = opened->state_dict();
    INFO(text_of(read));
    REQUIRE(read);
    check_is_filled(*read);
  }
  // Ranks refuse them.
  const auto refused = run_ranks(1, [&](any_communicator& comm) -> result<void> {
    rank_save_options options = quick;
    options.format = target_format::pt;
    const auto report = save(scratch.path() / "ranks.pt", state, comm, options);
    return report ? result<void>() : report.error();
  });
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::unsupported);
}

TEST_CASE("one process selects, and leaves objects out, in every format") {
  const safetensors_files::temporary_folder scratch;
  rank_save_options options = quick;
  options.skip_objects = true;
  for (const auto& [to, name] : {std::pair{target_format::dcp, "dcp"}, std::pair{target_format::pt, "model.pt"}}) {
    CAPTURE(name);
    options.format = to;
    options.selection = {.rename = {parse_rename_rule(R"(model\.(.*)=\1)").value()}};
    const auto report = save(scratch.path() / name, make_dict(true), options);
    INFO(text_of(report));
    REQUIRE(report);
    CHECK(report->skipped_objects == 2);
    const auto opened = open(scratch.path() / name);
    REQUIRE(opened);
    REQUIRE(opened->tensors().size() == 1);
    CHECK(opened->tensors().front().key == "w");
    CHECK(opened->objects().empty());
    options.selection = {.only = {key_pattern::compile("nothing").value()}};
    const auto nothing = save(scratch.path() / (std::string("no-") + name), make_dict(true), options);
    REQUIRE_FALSE(nothing);
    CHECK(nothing.error().code == errc::invalid_argument);
    CHECK(nothing.error().ranks.empty());
  }
}

TEST_CASE("the last check of a save is called in every format and on every rank, and its error leaves nothing behind") {
  const safetensors_files::temporary_folder scratch;
  const dict state = make_dict(true);
  rank_save_options options = quick;
  for (const target_format format : {target_format::dcp, target_format::safetensors, target_format::hf,
                                     target_format::pt, target_format::torch_checkpointing}) {
    CAPTURE(target_of(format).name);
    options.format = format;
    int calls = 0;
    options.hooks.last_check = [&]() -> result<void> {
      ++calls;
      return fail(errc::bad_format, "the check found something");
    };
    const auto refused =
        save(scratch.path() / (std::string("new") + std::string(target_of(format).extension)), state, options);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message == "the check found something");
    CHECK(calls == 1);
    CHECK(fs::is_empty(scratch.path()));
  }
  options.format = target_format::dcp;
  const std::vector<std::string> outcomes = on_two_ranks([&](any_communicator& comm) {
    rank_save_options own = options;
    own.hooks.last_check = [&]() -> result<void> {
      if (comm.rank() == 0) return {};
      return fail(errc::bad_format, "the check found something");
    };
    return text_of(save(scratch.path() / "new", state, comm, own));
  });
  for (const std::string& outcome : outcomes) CHECK(outcome.find("the check found something") != std::string::npos);
  CHECK(fs::is_empty(scratch.path()));
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

TEST_CASE("a type whose local_view and set_objects stand beside it is saved and loaded, on ranks and alone") {
  const safetensors_files::temporary_folder scratch;
  const auto said = on_two_ranks([&](any_communicator& comm) -> std::string {
    user::trainer saved = user::trainer::filled(comm.rank(), 2), loaded{comm.rank(), 2};
    if (const auto report = save(scratch.path() / "dcp", saved, comm, quick); !report) return text_of(report);
    if (const auto report = load(scratch.path() / "dcp", loaded, comm); !report) return text_of(report);
    if (loaded.rows != saved.rows) return "other rows";
    return loaded.step == 7 ? "" : "another step";
  });
  CHECK(said == success);
  // Rank 1's rows, loaded by one process.
  user::trainer part{1, 2};
  REQUIRE(load(scratch.path() / "dcp", part));
  CHECK(part.rows == floats{6, 7, 8, 9, 10, 11});
  CHECK(part.step == 7);
}

TEST_CASE("the error of set_objects is the error of the load") {
  const safetensors_files::temporary_folder scratch;
  dict other;
  other.set({"w"}, host_tensor::zeros(dtype::float32, {2, 3}).value()).value();
  other.set({"step"}, "seven").value();
  REQUIRE(save(scratch.path() / "dcp", other, quick));
  user::trainer mine;
  const auto report = load(scratch.path() / "dcp", mine);
  REQUIRE_FALSE(report);
  CHECK(to_string(report.error()) == "step: is no integer");
}

TEST_CASE("a state with objects and without set_objects is saved, and refused by load before a byte is read") {
  const safetensors_files::temporary_folder scratch;
  user::forgetful saved{user::trainer::filled(0, 1)}, loaded;
  REQUIRE(save(scratch.path() / "dcp", saved, quick));
  const auto report = load(scratch.path() / "dcp", loaded);
  REQUIRE_FALSE(report);
  CHECK(to_string(report.error()) ==
        "step: the local view has an object, but the state has no set_objects for its value; declare result<void> "
        "set_objects(State&, std::span<const local_state_object>) beside the state");
  CHECK(loaded.mine.rows == floats(6, 0.0F));
}

TEST_CASE("every rank gets the error of the rank without a view, and the communicator stays usable") {
  const safetensors_files::temporary_folder scratch;
  const fs::path folder = scratch.path() / "dcp";
  for (const bool throws : {false, true}) {
    const std::string expected = throws ? "an exception was thrown: a lazy tensor (rank 1)" : "w: is lazy (rank 1)";
    const std::vector<std::string> refused(2, expected);
    CAPTURE(throws);
    const auto saving = on_two_ranks([&](any_communicator& comm) -> std::string {
      user::failing state{user::trainer::filled(comm.rank(), 2), throws};
      return text_of(save(folder, state, comm, quick));
    });
    CHECK(saving == refused);
    const auto starting = on_two_ranks([&](any_communicator& comm) -> std::string {
      user::failing state{user::trainer::filled(comm.rank(), 2), throws};
      return text_of(start_save(folder, state, comm, quick));
    });
    CHECK(starting == refused);
    CHECK_FALSE(fs::exists(folder));
    const fs::path saved = scratch.path() / (throws ? "second" : "first");
    const auto loading = on_two_ranks([&](any_communicator& comm) -> std::string {
      user::failing state{user::trainer{comm.rank(), 2}, throws};
      user::trainer good = user::trainer::filled(comm.rank(), 2);
      if (const auto report = save(saved, good, comm, quick); !report) return text_of(report);
      const auto report = load(saved, state, comm);
      // The same communicator continues to work.
      if (const auto after = load(saved, good, comm); !after) return text_of(after);
      return text_of(report);
    });
    CHECK(loading == refused);
  }
}

TEST_CASE("a view that owns what it saves lives until the save is over") {
  const safetensors_files::temporary_folder scratch;
  user::doubled saved{{1, 2, 3}}, loaded{{0, 0, 0}};
  REQUIRE(save(scratch.path() / "dcp", saved, quick));
  REQUIRE(load(scratch.path() / "dcp", loaded));
  CHECK(loaded.values == floats{2, 4, 6});
}

TEST_CASE("start_save has copied the state and its view when it returns") {
  const safetensors_files::temporary_folder scratch;
  const auto said = on_two_ranks([&](any_communicator& comm) -> std::string {
    // Of each state, the memory is gone or changed before the save has ended.
    auto rows = std::make_unique<user::trainer>(user::trainer::filled(comm.rank(), 2));
    auto saving = start_save(scratch.path() / "rows", *rows, comm, quick);
    if (!saving) return text_of(saving);
    std::fill(rows->rows.begin(), rows->rows.end(), -1.0F);
    rows.reset();
    if (const auto& report = saving->wait(); !report) return text_of(report);
    auto temporary = start_save(scratch.path() / "doubled", user::doubled{{1, 2, 3}}, comm, quick);
    if (!temporary) return text_of(temporary);
    if (const auto& report = temporary->wait(); !report) return text_of(report);
    user::trainer loaded{comm.rank(), 2};
    if (const auto report = load(scratch.path() / "rows", loaded, comm); !report) return text_of(report);
    user::doubled doubled{{0, 0, 0}};
    if (const auto report = load(scratch.path() / "doubled", doubled, comm); !report) return text_of(report);
    if (loaded.rows != user::trainer::filled(comm.rank(), 2).rows) return "other rows";
    return doubled.values == floats{2, 4, 6} ? "" : "other doubled values";
  });
  CHECK(said == success);
}

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
