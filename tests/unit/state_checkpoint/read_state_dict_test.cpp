// SPDX-License-Identifier: Apache-2.0
// Tests read_state_dict: .pt files and safetensors, round trips, tensors of other frameworks, selections, and refusals.
// golden_read_test tests PyTorch's DCP folders.
#include <array_tensor.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <checkpoint_data.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <golden.hpp>
#include <nlohmann/json.hpp>
#include <safetensors_files.hpp>
#include <sha256.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

import shardmesh.collective_checkpoint;
import shardmesh.state_checkpoint;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

using dict = state_dict<host_tensor>;

host_tensor floats(const extents& sizes, std::vector<float> values) {
  host_tensor made = host_tensor::make(dtype::float32, sizes).value();
  std::copy(values.begin(), values.end(), made.values<float>().begin());
  return made;
}

std::string sha_at(const dict& found, const path& at) {
  const auto* const value = found.find(at);
  return value && value->tensor() ? test::sha256(value->tensor()->bytes()) : "no tensor at " + to_string(at);
}

tree_spec flat_spec(node_kind kind, int leaves) {
  tree_builder builder;
  builder.begin(kind);
  for (int i = 0; i < leaves; ++i) builder.leaf();
  builder.end();
  return builder.finish().value();
}

// Nested containers with tensors (also empty and 0-d ones), a tuple, bytes, and plain values.
dict nested_state() {
  dict made;
  REQUIRE(made.set({"model", "w"}, floats({2, 3}, {1, 2, 3, 4, 5, 6})));
  REQUIRE(made.set({"model", "layers", 0, "b"}, floats({2}, {7, 8})));
  REQUIRE(made.set({"model", "layers", 1, "b"}, floats({0}, {})));
  REQUIRE(made.set({"scalar"}, floats({}, {9})));
  REQUIRE(made.set({"step"}, 1000));
  REQUIRE(made.set({"lr"}, 0.25));
  REQUIRE(made.set({"name"}, "adam"));
  REQUIRE(made.set({"nothing"}, state_value<host_tensor>()));
  const std::vector<local_state_object> betas{{{"betas"}, flat_spec(node_kind::tuple, 2), {0.9, 0.999}},
                                              {{"raw"}, {}, {std::vector<std::byte>{std::byte{1}, std::byte{255}}}}};
  REQUIRE(set_objects(made, std::span<const local_state_object>(betas)));
  return made;
}

void save_state(dict& state, const fs::path& folder) {
  const auto saved = run_ranks(1, [&](any_communicator& comm) -> result<void> {
    const auto held = local_view(state);
    if (!held) return held.error();
    if (auto done = save(folder, *held, comm); !done) return std::move(done).error();
    return {};
  });
  INFO((saved ? "" : to_string(saved.error())));
  REQUIRE(saved);
}

error refusal(const fs::path& checkpoint, const read_state_options& options = {}) {
  const auto found = read_state_dict<host_tensor>(checkpoint, options);
  REQUIRE_FALSE(found);
  return found.error();
}

}  // namespace

TEST_CASE("a state dict that was saved is read as it was, containers, numbers and all") {
  const safetensors_files::temporary_folder folder;
  dict state = nested_state();
  save_state(state, folder.path() / "step");
  const auto found = read_state_dict<host_tensor>(folder.path() / "step");
  INFO((found ? "" : to_string(found.error())));
  REQUIRE(found);
  CHECK(*found == state);
  CHECK(found->kind({"betas"}) == node_kind::tuple);
  CHECK(found->kind({"model", "layers"}) == node_kind::sequence);
  // Saving it again gives the same checkpoint.
  dict again = read_state_dict<host_tensor>(folder.path() / "step").value();
  save_state(again, folder.path() / "again");
  CHECK(read_state_dict<host_tensor>(folder.path() / "again").value() == state);
}

TEST_CASE(
    "a .pt file is read with its nested containers, and an object whose tensors have no names is refused by key") {
  const fs::path file = SHARDMESH_TEST_DATA "/objects/containers.pt";
  const auto expected =
      checkpoint_data::read_json(SHARDMESH_TEST_DATA "/objects/expected.json")["containers"]["tensors"];
  const error why = refusal(file);
  CHECK(why.code == errc::unsupported);
  CHECK(why.key == "call");
  CHECK(why.file == file.string());
  const auto found = read_state_dict<host_tensor>(file, {.selection = {.skip = {key_pattern::exactly("call")}}});
  INFO((found ? "" : to_string(found.error())));
  REQUIRE(found);
  const std::vector<std::pair<std::string, path>> tensors{
      {"tuple.0", {"tuple", 0}},        {"point.0", {"point", 0}}, {"data.w", {"data", "w"}},
      {"slots.t", {"slots", "t"}},      {"set.0", {"set", 0}},     {"cycle.t", {"cycle", "t"}},
      {"deep.0.0.0", {"deep", 0, 0, 0}}};
  for (const auto& [key, at] : tensors) CHECK(sha_at(*found, at) == expected[key]["sha256"].get<std::string>());
  const std::vector<std::pair<path, std::int64_t>> numbers{{{"tuple", 1}, 2},     {{"point", 1}, 7},
                                                           {{"data", "step"}, 5}, {{"slots", "n"}, 4},
                                                           {{"plain", 0}, 1},     {{"plain", 1}, 2}};
  for (const auto& [at, number] : numbers) {
    INFO(to_string(at));
    REQUIRE(found->find(at));
    CHECK(*found->find(at)->integer() == number);
  }
  CHECK(*found->find({"deep", 0, 1})->text() == "a");
  CHECK(found->kind({"plain"}) == node_kind::tuple);
  CHECK(found->size() == tensors.size() + numbers.size() + 1);
}

TEST_CASE("keys of safetensors are one name each, dots and all, unless objects beside them say their paths") {
  const fs::path golden = checkpoint_data::golden() / "hf_sharded";
  const auto expected = checkpoint_data::read_json(golden / "expected.json")["tensors"];
  const auto found = read_state_dict<host_tensor>(golden / "checkpoint");
  REQUIRE(found);
  CHECK(found->size() == expected.size());
  for (const auto& [key, tensor] : expected.items())
    CHECK(sha_at(*found, {key}) == tensor["sha256"].get<std::string>());
  for (const fs::path& checkpoint : {golden / "checkpoint", checkpoint_data::golden() / "single_rank/checkpoint",
                                     fs::path(SHARDMESH_TEST_DATA "/objects/module.pt")}) {
    const auto reader = open_checkpoint(checkpoint).value();
    for (const tensor_entry& tensor : reader->contents().tensors) CHECK_FALSE(tensor.where.empty());
    for (const object_entry& object : reader->contents().objects) CHECK_FALSE(object.where.empty());
  }
  const safetensors_files::temporary_folder folder;
  dict state = nested_state();
  save_state(state, folder.path() / "step");
  auto reader = open_checkpoint(folder.path() / "step").value();
  REQUIRE(convert(*reader, folder.path() / "flat.safetensors", {}));
  const dict flat = read_state_dict<host_tensor>(folder.path() / "flat.safetensors").value();
  CHECK(flat == state);
  REQUIRE(convert(*reader, folder.path() / "tensors.safetensors", {.skip_objects = true}));
  const dict tensors = read_state_dict<host_tensor>(folder.path() / "tensors.safetensors").value();
  REQUIRE(tensors.find({"model.layers.0.b"}));
  CHECK(tensors.find({"model.layers.0.b"})->tensor()->values<float>()[1] == 8.0F);
  CHECK(!tensors.find({"model", "layers", 0, "b"}));
}

TEST_CASE("tensors of another framework are filled through their adapter") {
  const safetensors_files::temporary_folder folder;
  std::vector<std::int64_t> values{1, 2, 3, 4, 5, 6};
  const save_tensor w{
      "a.w",
      {"a", "w"},
      {2, 3},
      {{box::whole({2, 3}), {reinterpret_cast<std::byte*>(values.data()), dtype::int64, {}, {2, 3}, {3, 1}}, 0}}};
  REQUIRE(save(folder.path() / "step", {&w, 1}));
  const auto found = read_state_dict<test::array_tensor>(folder.path() / "step");
  REQUIRE(found);
  CHECK(found->size() == 1);
  REQUIRE(found->find({"a", "w"}));
  CHECK(found->find({"a", "w"})->tensor()->values == values);
  CHECK(found->find({"a", "w"})->tensor()->sizes == extents{2, 3});
}

TEST_CASE("a selection reads some entries, under other names and dtypes; without objects tensors alone are read") {
  const safetensors_files::temporary_folder folder;
  dict state = nested_state();
  save_state(state, folder.path() / "step");
  const selection_options some{.only = {key_pattern::compile("model.*|step").value()},
                               .skip = {key_pattern::compile(".*1.b").value()},
                               .rename = {parse_rename_rule(R"(model\.w=weight.w)").value()},
                               .cast = {parse_cast_rule("model.w=float32:int16").value()},
                               .allow_narrowing = true};
  const auto found = read_state_dict<host_tensor>(folder.path() / "step", {.selection = some});
  REQUIRE(found);
  CHECK(found->size() == 3);
  REQUIRE(found->find({"weight.w"}));
  CHECK(found->find({"weight.w"})->tensor()->type() == dtype::int16);
  CHECK(found->find({"weight.w"})->tensor()->values<std::int16_t>()[5] == 6);
  CHECK(found->find({"model", "layers", 0, "b"})->tensor()->values<float>()[0] == 7.0F);
  CHECK(*found->find({"step"})->integer() == 1000);
  const dict tensors = read_state_dict<host_tensor>(folder.path() / "step", {.objects = false}).value();
  CHECK(tensors.size() == 4);
  for (const auto& leaf : tensors.leaves()) CHECK(leaf.tensor());
}

TEST_CASE("casts of a state dict that is read are listed, and those that lose values counted in a note") {
  const safetensors_files::temporary_folder folder;
  dict state = nested_state();
  save_state(state, folder.path() / "step");
  std::vector<read_state_report> reports;
  read_state_options options{.report = [&](const read_state_report& report) { reports.push_back(report); }};
  REQUIRE(read_state_dict<host_tensor>(folder.path() / "step", options));
  options.selection.cast = {parse_cast_rule("model.w=float64").value(), parse_cast_rule(".*b=bfloat16").value()};
  REQUIRE(read_state_dict<host_tensor>(folder.path() / "step", options));
  options.selection.cast = {parse_cast_rule("model.w=float16").value()};
  REQUIRE(read_state_dict<host_tensor>(folder.path() / "step", options));
  REQUIRE(reports.size() == 3);
  CHECK(reports[0].casts == std::vector<loaded_cast>{});
  CHECK(reports[0].notes == std::vector<std::string>{});
  CHECK(reports[1].casts == std::vector<loaded_cast>{{"model.w", dtype::float32, dtype::float64},
                                                     {"model.layers.0.b", dtype::float32, dtype::bfloat16},
                                                     {"model.layers.1.b", dtype::float32, dtype::bfloat16}});
  CHECK(reports[1].notes ==
        std::vector<std::string>{"2 tensors are cast from float32 to bfloat16, which does not hold every value of "
                                 "float32: model.layers.0.b and 1 more; numbers beyond 3.3895e+38 become infinity and "
                                 "are not counted"});
  CHECK(reports[2].casts == std::vector<loaded_cast>{{"model.w", dtype::float32, dtype::float16}});
  CHECK(reports[2].notes ==
        std::vector<std::string>{"1 tensor is cast from float32 to float16, which does not hold every value of "
                                 "float32: model.w; numbers beyond 65504 become infinity and are not counted"});
  // A failed read gives no report.
  options.selection.cast = {parse_cast_rule("model.w=int16").value()};
  CHECK_FALSE(read_state_dict<host_tensor>(folder.path() / "step", options));
  CHECK(reports.size() == 3);
}

TEST_CASE("optimizer state and the names in its lists follow a renamed parameter") {
  const safetensors_files::temporary_folder folder;
  dict state;
  REQUIRE(state.set({"model", "w"}, floats({2}, {1, 2})));
  REQUIRE(state.set({"model", "b"}, floats({1}, {3})));
  REQUIRE(state.set({"optim", "state", "w", "exp_avg"}, floats({2}, {4, 5})));
  const std::vector<local_state_object> names{{{"optim", "param_groups", "0", "params"},
                                               flat_spec(node_kind::sequence, 2),
                                               {std::string("w"), std::string("b")}}};
  REQUIRE(set_objects(state, std::span<const local_state_object>(names)));
  save_state(state, folder.path() / "step");
  const auto found = read_state_dict<host_tensor>(
      folder.path() / "step", {.selection = {.skip = {key_pattern::exactly("model.b")},
                                             .rename = {parse_rename_rule("model.w=model.v").value()},
                                             .optimizer_follows = true}});
  REQUIRE(found);
  CHECK(found->size() == 3);
  REQUIRE(found->find({"optim.state.v.exp_avg"}));
  CHECK(found->find({"optim.state.v.exp_avg"})->tensor()->values<float>()[1] == 5.0F);
  REQUIRE(found->find({"optim", "param_groups", "0", "params", 0}));
  CHECK(*found->find({"optim", "param_groups", "0", "params", 0})->text() == "v");
}

TEST_CASE("what cannot be read as a state dict is refused with file and key") {
  const safetensors_files::temporary_folder folder;
  CHECK(refusal(folder.path() / "nowhere").code == errc::io);
  dict state = nested_state();
  save_state(state, folder.path() / "step");
  error why = refusal(folder.path() / "step", {.selection = {.only = {key_pattern::compile("model.v").value()}}});
  CHECK(why.code == errc::invalid_argument);
  CHECK(why.file == (folder.path() / "step").string());
  CHECK(why.message == "only 'model.v' matches no key");
  CHECK(why.hint == "did you mean model.w? pass allow_unused to ignore this");
  // An object of which a safetensors file keeps only the type's name.
  auto reader = open_checkpoint(checkpoint_data::golden() / "nested_objects/checkpoint").value();
  REQUIRE(convert(
      *reader, folder.path() / "one.safetensors",
      {.selection = {.only = {key_pattern::exactly("namespace"), key_pattern::exactly("model.layer.0.weight")}}}));
  why = refusal(folder.path() / "one.safetensors");
  CHECK(why.code == errc::unsupported);
  CHECK(why.key == "namespace");
  CHECK(why.file == (folder.path() / "one.safetensors").string());
  CHECK(why.found == "argparse.Namespace");
  CHECK(why.hint == "set objects = false to read only tensors");
  CHECK(read_state_dict<host_tensor>(folder.path() / "one.safetensors", {.objects = false}).value().size() == 1);
  // One entry lies inside another.
  why = refusal(folder.path() / "step", {.selection = {.only = {key_pattern::compile("model.w|step").value()},
                                                       .rename = {parse_rename_rule("step=model").value()}}});
  CHECK(why.code == errc::invalid_argument);
  CHECK(why.file == (folder.path() / "step").string());
  // The sound part of a damaged checkpoint is not read either.
  why = refusal(checkpoint_data::golden() / "corrupt/chunk_out_of_bounds/checkpoint");
  CHECK(why.code == errc::out_of_bounds);
  CHECK(why.key == "rows10");
}
