// SPDX-License-Identifier: Apache-2.0
// Tests convert --flat-spec: PyTorch's FSDP1 local state dict (golden/fsdp1_local) with named parameters. Expected
// values are hand-cut slices of the golden flat tensors, in the modules' order, row-major.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <refusal.hpp>
#include <run_tool.hpp>
#include <string>
#include <utility>
#include <vector>
import shardmesh;

using namespace shardmesh;
using nlohmann::json;

namespace {

const std::string source = SHARDMESH_TEST_DATA "/golden/fsdp1_local/checkpoint";

json parameter(const std::string& name, std::vector<std::int64_t> shape) {
  return {{"name", name}, {"shape", std::move(shape)}};
}

// The golden model: mlp(7, 10, 5), norm(5), head(5, 3).
json golden_spec() {
  return {{"units",
           {{{"key", "model.mlp._flat_param"},
             {"parameters",
              {parameter("up.weight", {10, 7}), parameter("up.bias", {10}), parameter("down.weight", {5, 10}),
               parameter("down.bias", {5})}}},
            {{"key", "model._flat_param"},
             {"parameters",
              {parameter("norm.weight", {5}), parameter("norm.bias", {5}), parameter("head.weight", {3, 5})}}}}}};
}

std::string write(const scratch_folder& folder, const std::string& text) {
  const std::string file = (folder / "spec.json").string();
  std::ofstream(file, std::ios::binary) << text;
  return file;
}

std::vector<float> floats(checkpoint_reader& reader, const std::string& key) {
  const auto tensor = load_tensor(reader, key);
  INFO((tensor ? "" : to_string(tensor.error())));
  REQUIRE(tensor);
  const auto* values = reinterpret_cast<const float*>(tensor->bytes().data());
  return {values, values + tensor->bytes().size() / sizeof(float)};
}

std::vector<float> slice(const std::vector<float>& all, std::ptrdiff_t begin, std::ptrdiff_t size) {
  return {all.begin() + begin, all.begin() + begin + size};
}

// The one line that refuses a spec; nothing is written.
std::string spec_refusal(const std::string& spec) {
  const scratch_folder folder;
  INFO(spec);
  const std::string line = refusal(
      "convert " + source + " " + (folder / "out.safetensors").string() + " --flat-spec " + write(folder, spec), 1);
  CHECK_FALSE(std::filesystem::exists(folder / "out.safetensors"));
  return line;
}

}  // namespace

TEST_CASE("a local state dict comes out with named parameters in every format") {
  auto stored = open_checkpoint(source).value();
  const auto mlp = floats(*stored, "model.mlp._flat_param"), root = floats(*stored, "model._flat_param");
  const std::map<std::string, std::pair<extents, std::vector<float>>> expected{
      {"model.mlp.up.weight", {{10, 7}, slice(mlp, 0, 70)}},    {"model.mlp.up.bias", {{10}, slice(mlp, 70, 10)}},
      {"model.mlp.down.weight", {{5, 10}, slice(mlp, 80, 50)}}, {"model.mlp.down.bias", {{5}, slice(mlp, 130, 5)}},
      {"model.norm.weight", {{5}, slice(root, 0, 5)}},          {"model.norm.bias", {{5}, slice(root, 5, 5)}},
      {"model.head.weight", {{3, 5}, slice(root, 10, 15)}}};
  for (const std::string& to : {"dcp", "safetensors", "hf"}) {
    const scratch_folder folder;
    const std::string out = (folder / (to == "safetensors" ? "out.safetensors" : "out")).string();
    const auto run = run_tool("convert " + source + " " + out + " --to " + to + " --memory 4MiB --flat-spec " +
                              write(folder, golden_spec().dump()));
    INFO(run.err);
    REQUIRE(run.status == 0);
    CHECK(run.err.empty());  // no note about unknown names
    auto made = open_checkpoint(out).value();
    CHECK(made->contents().tensors.size() == expected.size());
    for (const auto& [key, value] : expected) {
      CAPTURE(to, key);
      CHECK(load_tensor(*made, key).value().sizes() == value.first);
      CHECK(floats(*made, key) == value.second);
    }
    CHECK(run_tool("verify " + out).status == 0);
    if (to == "dcp")
      for (const tensor_entry& t : made->contents().tensors) CHECK(dotted(t.where) == t.key);
  }
}

TEST_CASE("parameters of a flat spec are selected, renamed and cast like stored ones, and stored in other orders") {
  const scratch_folder folder;
  json spec = golden_spec();
  // As if down.weight were stored by columns, and head.weight had a second name.
  spec["units"][0]["parameters"][2]["strides"] = {1, 5};
  spec["units"][1]["shared"] = {{{"name", "tied.weight"}, {"of", "head.weight"}}};
  spec["units"][1]["prefix"] = "top";
  const std::string out = (folder / "out.safetensors").string();
  const auto run =
      run_tool("convert " + source + " " + out +
               " --skip '.*bias' --rename 'model\\.mlp\\.(.*)=\\1' --dtype 'top.norm.*=float64' --flat-spec " +
               write(folder, spec.dump()));
  INFO(run.err);
  REQUIRE(run.status == 0);
  auto stored = open_checkpoint(source).value();
  auto made = open_checkpoint(out).value();
  const auto mlp = floats(*stored, "model.mlp._flat_param"), root = floats(*stored, "model._flat_param");
  std::vector<float> transposed(50);
  for (std::size_t r = 0; r < 5; ++r)
    for (std::size_t c = 0; c < 10; ++c) transposed[10 * r + c] = mlp[80 + 5 * c + r];
  CHECK(floats(*made, "down.weight") == transposed);
  CHECK(floats(*made, "up.weight") == slice(mlp, 0, 70));
  CHECK(floats(*made, "top.head.weight") == slice(root, 10, 15));
  CHECK(floats(*made, "top.tied.weight") == slice(root, 10, 15));
  CHECK(load_tensor(*made, "top.norm.weight").value().type() == dtype::float64);
  CHECK(made->contents().tensors.size() == 5);
}

TEST_CASE("a flat spec that does not fit says what, where and by how much") {
  json spec = golden_spec();
  spec["units"][0]["parameters"][0]["shape"] = {10, 8};
  CHECK(says(spec_refusal(spec.dump()), "model.mlp._flat_param: "));
  CHECK(says(spec_refusal(spec.dump()), "145 elements"));
  CHECK(says(spec_refusal(spec.dump()), "[135]"));
  spec = golden_spec();
  spec["units"][1]["key"] = "model.other._flat_param";
  CHECK(says(spec_refusal(spec.dump()), "_flat_param"));
  spec = golden_spec();
  spec["units"].erase(1);
  CHECK(says(spec_refusal(spec.dump()), "model._flat_param: the flat spec does not say"));
  spec = golden_spec();
  spec["units"].push_back({{"key", "model.none._flat_param"}, {"parameters", json::array()}});
  CHECK(says(spec_refusal(spec.dump()), "model.none._flat_param: "));
  spec = golden_spec();
  spec["units"][1]["parameters"][0]["name"] = "mlp.up.bias";
  CHECK(says(spec_refusal(spec.dump()), "model.mlp.up.bias: two tensors have the same name"));
  spec = golden_spec();
  spec["units"][0]["parameters"][2]["strides"] = {11, 1};
  CHECK(says(spec_refusal(spec.dump()), "parameter down.weight"));
  spec = golden_spec();
  spec["units"][1]["shared"] = {{{"name", "tied"}, {"of", "nobody"}}};
  CHECK(says(spec_refusal(spec.dump()), "nobody"));
}

TEST_CASE("a flat spec that is none says line or member") {
  CHECK(says(spec_refusal("{\n  \"units\": [\n    {]\n}"), "line 3"));
  CHECK(says(spec_refusal("[]"), "an object"));
  CHECK(says(spec_refusal("{}"), "units"));
  CHECK(says(spec_refusal(R"({"unit":[]})"), "unit"));
  CHECK(says(spec_refusal(R"({"units":[{"parameters":[]}]})"), "units[0]"));
  CHECK(says(spec_refusal(R"({"units":[{"key":"k","parameters":[{"name":"w"}]}]})"), "units[0].parameters[0]"));
  CHECK(
      says(spec_refusal(R"({"units":[{"key":"k","parameters":[{"name":"w","shape":[-1]}]}]})"), "parameters[0].shape"));
  CHECK(says(spec_refusal(R"({"units":[{"key":"k","parameters":[{"name":"w","shape":[99999999999999999999]}]}]})"),
             "shape"));
  CHECK(says(spec_refusal(R"({"units":[{"key":"k","alignment":-1,"parameters":[]}]})"), "alignment"));
  CHECK(says(spec_refusal(R"({"units":[{"key":"k","parameters":[]},{"key":"k","parameters":[]}]})"),
             "units[0] and units[1]"));
  const scratch_folder folder;
  const auto run = run_tool("convert " + source + " " + (folder / "out.safetensors").string() + " --flat-spec " +
                            (folder / "nowhere.json").string());
  CHECK(run.status == 3);
  CHECK(says(run.err, "nowhere.json"));
}

TEST_CASE(
    "an aligned flat parameter of several stored pieces gives back its parameters, and needs its number of ranks") {
  // As with use_orig_params on two ranks: a begins at element 0, b at 4, and one element of padding makes the shards
  // even.
  std::vector<float> flat{0, 1, 2, 42, 3, 4, 5, 6, 7, 42};
  const scratch_folder folder;
  save_tensor stored{"layer._flat_param", {}, {10}, {}};
  for (std::int32_t r = 0; r < 2; ++r)
    stored.parts.push_back(
        {{{5 * r}, {5}}, {reinterpret_cast<std::byte*>(flat.data() + 5 * r), dtype::float32, {}, {5}, {1}}, r});
  REQUIRE(save(folder / "flat", {&stored, 1}));
  json spec{{"units",
             {{{"key", "layer._flat_param"},
               {"alignment", 4},
               {"ranks", 2},
               {"parameters", {parameter("a", {3}), parameter("b", {5, 1})}}}}}};
  const std::string command = "convert " + (folder / "flat").string() + " " + (folder / "out").string() + " --to dcp";
  const auto run = run_tool(command + " --flat-spec " + write(folder, spec.dump()));
  INFO(run.err);
  REQUIRE(run.status == 0);
  auto made = open_checkpoint(folder / "out").value();
  CHECK(floats(*made, "layer.a") == std::vector<float>{0, 1, 2});
  CHECK(floats(*made, "layer.b") == std::vector<float>{3, 4, 5, 6, 7});
  // Chunks stay with the ranks that held them: rank 0 held one element of b.
  const catalog& contents = made->contents();
  for (const tensor_entry& t : contents.tensors) CHECK(t.chunk_count == (t.key == "layer.b" ? 2 : 1));
  spec["units"][0].erase("ranks");
  const auto refused = run_tool(command + " --force --flat-spec " + write(folder, spec.dump()));
  CHECK(refused.status == 1);
  CHECK(says(refused.err, "\"ranks\""));
}
