// SPDX-License-Identifier: Apache-2.0
// Tests `checkpoint`, an opened checkpoint as a value: its reads, its views, and their errors.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <optional>
#include <safetensors_files.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.collective_checkpoint;
import shardmesh.state_checkpoint;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

using floats = std::vector<float>;

host_tensor counted(const extents& sizes, float first) {
  host_tensor made = host_tensor::make(dtype::float32, sizes).value();
  std::iota(made.values<float>().begin(), made.values<float>().end(), first);
  return made;
}

floats values(const host_tensor& tensor) {
  const auto all = tensor.values<float>();
  return {all.begin(), all.end()};
}

// "model.w" [4, 3] of 0 to 11, "model.b" [3] of 20 to 22, "optim.w" [2], and the object "step", 7.
struct saved {
  safetensors_files::temporary_folder scratch;
  fs::path folder = scratch.path() / "step-7";

  saved() {
    state_dict<host_tensor> state;
    REQUIRE(state.set({"model", "w"}, counted({4, 3}, 0)));
    REQUIRE(state.set({"model", "b"}, counted({3}, 20)));
    REQUIRE(state.set({"optim", "w"}, counted({2}, 30)));
    REQUIRE(state.set({"step"}, 7));
    const auto done = run_ranks(1, [&](any_communicator& comm) -> result<void> {
      const auto local = local_view(state);
      if (!local) return local.error();
      if (auto written = save(folder, *local, comm); !written) return std::move(written).error();
      return {};
    });
    INFO((done ? "" : to_string(done.error())));
    REQUIRE(done);
  }
};

std::vector<std::string> keys(const checkpoint& opened) {
  std::vector<std::string> made;
  for (const tensor_entry& tensor : opened.tensors()) made.push_back(tensor.key);
  for (const object_entry& object : opened.objects()) made.push_back(object.key);
  std::sort(made.begin(), made.end());
  return made;
}

selection_options renaming(std::string_view only, std::string_view rule) {
  return {.only = {key_pattern::compile(only).value()}, .rename = {parse_rename_rule(rule).value()}};
}

}  // namespace

TEST_CASE("an opened checkpoint lists its entries and reads tensors, boxes of them, and objects") {
  const saved on_disk;
  const auto opened = open(on_disk.folder);
  INFO((opened ? "" : to_string(opened.error())));
  REQUIRE(opened);
  CHECK(opened->path() == on_disk.folder);
  CHECK(opened->format() == checkpoint_format::dcp);
  CHECK(keys(*opened) == std::vector<std::string>{"model.b", "model.w", "optim.w", "step"});
  CHECK(opened->problems().empty());
  REQUIRE(opened->find("model.w"));
  CHECK(opened->find("model.w")->shape == extents{4, 3});
  CHECK(opened->find("step") == nullptr);

  floats all(12);
  std::iota(all.begin(), all.end(), 0.0F);
  CHECK(values(opened->load("model.w").value()) == all);
  CHECK(values(opened->load("model.w", {{1, 1}, {2, 2}}).value()) == floats{4, 5, 7, 8});
  host_tensor into = host_tensor::make(dtype::float32, {2, 3}).value();
  REQUIRE(opened->load_into("model.w", box{{2, 0}, {2, 3}}, into));
  CHECK(values(into) == floats{6, 7, 8, 9, 10, 11});
  const auto number = opened->object("step");
  REQUIRE(number);
  CHECK(number->json == "7");
}

TEST_CASE("a copy of a checkpoint reads on when the first handle is gone") {
  const saved on_disk;
  std::optional<checkpoint> first = open(on_disk.folder).value();
  const checkpoint copy = *first;
  const checkpoint view = first->select(renaming("model[.].*", "model[.](.*)=\\1")).value();
  first.reset();
  CHECK(values(copy.load("model.b").value()) == floats{20, 21, 22});
  CHECK(values(view.load("b").value()) == floats{20, 21, 22});
}

TEST_CASE("a mapped tensor outlives the checkpoint that it came from") {
  const saved on_disk;
  const fs::path file = on_disk.scratch.path() / "mapped.safetensors";
  REQUIRE(convert(open(on_disk.folder).value(), file, {.skip_objects = true}));
  std::optional<checkpoint> opened = open(file).value();
  const auto mapped = opened->map("model.b");
  INFO((mapped ? "" : to_string(mapped.error())));
  REQUIRE(mapped);
  opened.reset();
  const auto* const first = reinterpret_cast<const float*>(mapped->view().data);
  CHECK(floats(first, first + 3) == floats{20, 21, 22});
}

TEST_CASE("state_dict reads a checkpoint whole, or the part of one rank") {
  const saved on_disk;
  const checkpoint opened = open(on_disk.folder).value();
  const auto whole = opened.state_dict();
  REQUIRE(whole);
  CHECK(values(*whole->find({"model", "w"})->tensor()) == values(opened.load("model.w").value()));
  CHECK(*whole->find({"step"})->integer() == 7);

  const device_mesh mesh = parse_mesh("dp=2").value();
  const auto rules = parse_placement_rules({"model.w=S(0)", ".*=R"}).value();
  const auto second = opened.state_dict(mesh, rules, 1);
  INFO((second ? "" : to_string(second.error())));
  REQUIRE(second);
  CHECK(values(second->find({"model", "w"})->dtensor()->local()) == floats{6, 7, 8, 9, 10, 11});
}

TEST_CASE("a selected view has the kept entries under their new names, and every call takes it") {
  const saved on_disk;
  const checkpoint opened = open(on_disk.folder).value();
  const checkpoint model = opened.select(renaming("model[.].*", "model[.](.*)=net.\\1")).value();
  CHECK(keys(model) == std::vector<std::string>{"net.b", "net.w"});
  CHECK(values(model.load("net.w", {{3, 0}, {1, 3}}).value()) == floats{9, 10, 11});
  CHECK(model.load("model.w").error().code == errc::missing_key);

  // Converted, the view is what convert makes of the same selection.
  const fs::path by_view = on_disk.scratch.path() / "view.safetensors",
                 by_rule = on_disk.scratch.path() / "rule.safetensors";
  REQUIRE(convert(model, by_view, {}));
  REQUIRE(convert(opened, by_rule, {.selection = renaming("model[.].*", "model[.](.*)=net.\\1")}));
  const auto differences = diff(open(by_view).value(), open(by_rule).value());
  REQUIRE(differences);
  CHECK(differences->differences.empty());
  CHECK(differences->tensors == 2);
  const verify_report checked = verify(model).value();
  CHECK(checked.ok());
  CHECK(checked.chunks == 2);
}

TEST_CASE("a view of a view shows what both keep") {
  const saved on_disk;
  const checkpoint opened = open(on_disk.folder).value();
  const auto inner = opened.select({.skip = {key_pattern::compile("optim.*").value()}});
  REQUIRE(inner);
  const auto outer = inner->select(renaming(".*w|step", "model[.]w=weight"));
  INFO((outer ? "" : to_string(outer.error())));
  REQUIRE(outer);
  CHECK(keys(*outer) == std::vector<std::string>{"step", "weight"});
  CHECK(outer->object("step").value().json == "7");
}

TEST_CASE("a view refuses a selection that would change values, and one that matches nothing") {
  const saved on_disk;
  const checkpoint opened = open(on_disk.folder).value();
  const auto cast = opened.select({.cast = {parse_cast_rule("model.w=float16").value()}});
  REQUIRE_FALSE(cast);
  CHECK(cast.error().code == errc::unsupported);
  CHECK(cast.error().key == "model.w");
  CHECK(cast.error().file == on_disk.folder.string());
  CHECK(to_string(cast.error()).find("float16") != std::string::npos);
  const auto none = opened.select({.only = {key_pattern::compile("modle.*").value()}});
  REQUIRE_FALSE(none);
  CHECK(none.error().code == errc::invalid_argument);
  CHECK(none.error().file == on_disk.folder.string());
}

TEST_CASE("keys that are not there are named with one that is near") {
  const saved on_disk;
  const checkpoint opened = open(on_disk.folder).value();
  const auto tensor = opened.load("model.v");
  REQUIRE_FALSE(tensor);
  CHECK(tensor.error().code == errc::missing_key);
  CHECK(to_string(tensor.error()).find("model.w") != std::string::npos);
  const auto object = opened.object("stop");
  REQUIRE_FALSE(object);
  CHECK(object.error().code == errc::missing_key);
  CHECK(to_string(object.error()).find("step") != std::string::npos);
  CHECK(opened.object("model.w").error().code == errc::dtype_mismatch);
  CHECK(open(on_disk.scratch.path() / "nowhere").error().code == errc::io);
}

TEST_CASE("quantized weights are the numbers they stand for in a dequantized view") {
  const safetensors_files::temporary_folder scratch;
  // Two float8_e4m3fn elements, 1.0 (0x38) and 2.0 (0x40), with the scale 3.0.
  std::string data("\x38\x40", 2);
  const float scale = 3.0F;
  data.append(reinterpret_cast<const char*>(&scale), 4);
  const std::string header = R"({"x.weight":{"dtype":"F8_E4M3","shape":[1,2],"data_offsets":[0,2]},)"
                             R"("x.weight_scale_inv":{"dtype":"F32","shape":[1,1],"data_offsets":[2,6]}})";
  std::string bytes = safetensors_files::bytes(header, 0) + data;
  const checkpoint opened = open(scratch.write("model.safetensors", bytes)).value();
  const auto view = opened.dequantized();
  INFO((view ? "" : to_string(view.error())));
  REQUIRE(view);
  CHECK(keys(*view) == std::vector<std::string>{"x.weight"});
  CHECK(values(view->load("x.weight").value()) == floats{3, 6});
  CHECK(keys(opened) == std::vector<std::string>{"x.weight", "x.weight_scale_inv"});
}
