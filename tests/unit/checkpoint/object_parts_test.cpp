// SPDX-License-Identifier: Apache-2.0
// Tests objects of .pt files that hold tensors. These tensors become entries, those that cannot are counted, and
// nothing is lost.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <checkpoint_data.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <run_tool.hpp>
#include <string>
#include <vector>

import shardmesh.checkpoint;
import shardmesh.digest;
import shardmesh.torch_file;

using namespace shardmesh;
namespace data = checkpoint_data;

namespace {

const std::filesystem::path fixtures = std::filesystem::path(SHARDMESH_TEST_DATA) / "objects";

nlohmann::json described(checkpoint_reader& reader, const tensor_entry& tensor) {
  const auto values = load_tensor(reader, tensor.key);
  if (!values) FAIL(to_string(values.error()));
  return {{"dtype", std::string(name(tensor.type))},
          {"shape", std::vector<std::int64_t>(tensor.shape.begin(), tensor.shape.end())},
          {"sha256", sha256::hex_of(values->bytes())}};
}

nlohmann::json listed(const std::string& json) {
  return nlohmann::json::parse(json);
}

}  // namespace

TEST_CASE("tensors inside the objects of a .pt file are entries with PyTorch's names, values and hidden rests") {
  const std::string name = GENERATE("containers", "module");
  INFO(name);
  const auto reader = open_checkpoint(fixtures / (name + ".pt"));
  if (!reader) FAIL(to_string(reader.error()));
  nlohmann::json tensors = nlohmann::json::object(), hidden = nlohmann::json::object();
  for (const tensor_entry& tensor : (*reader)->contents().tensors) tensors[tensor.key] = described(**reader, tensor);
  for (const object_entry& object : (*reader)->contents().objects) hidden[object.key] = object.hidden_tensors;
  const auto expected = data::read_json(fixtures / "expected.json")[name];
  CHECK(tensors == expected["tensors"]);
  CHECK(hidden == expected["hidden"]);
}

TEST_CASE("an object whose part would have another entry's name stays one, with its tensor counted") {
  const auto reader = open_checkpoint(fixtures / "collision.pt");
  if (!reader) FAIL(to_string(reader.error()));
  REQUIRE((*reader)->contents().tensors.size() == 1);
  CHECK((*reader)->contents().tensors.front().key == "a.0");
  REQUIRE((*reader)->contents().objects.size() == 1);
  CHECK((*reader)->contents().objects.front().key == "a");
  CHECK((*reader)->contents().objects.front().hidden_tensors == 1);
}

TEST_CASE("a note names what is split, and what of it is not kept") {
  const auto reader = open_checkpoint(fixtures / "module.pt");
  if (!reader) FAIL(to_string(reader.error()));
  CHECK((*reader)->notes() ==
        std::vector<std::string>{
            "the file (a __main__.Net) is split into 10 tensors and 0 objects; 14 other "
            "attributes of modules are not kept; 1 buffer that is not persistent is not kept: transient"});
}

TEST_CASE("a tensor that nothing can carry refuses every conversion by name, and is left out and counted on demand") {
  const auto to = GENERATE(target_format::dcp, target_format::safetensors, target_format::hf);
  const scratch_folder folder;
  const auto reader = open_checkpoint(fixtures / "containers.pt");
  if (!reader) FAIL(to_string(reader.error()));
  convert_options options;
  options.format = to;
  const auto refused = convert(**reader, folder / "out", options);
  REQUIRE_FALSE(refused);
  REQUIRE(refused.error().problem_count() == 1);
  CHECK(refused.error().key == "call");
  CHECK(refused.error().file == (fixtures / "containers.pt").string());
  CHECK(refused.error().message == "an object with 1 tensor inside that cannot be written");
  CHECK(!std::filesystem::exists(folder / "out"));
  options.skip_unsupported = true;
  const auto written = convert(**reader, folder / "out", options);
  REQUIRE(written);
  CHECK(written->tensors == 7);
  CHECK(written->skipped_tensors == 1);
  CHECK(written->skipped_objects == 1);
}

TEST_CASE("an object of a DCP folder that holds tensors is copied whole to DCP and split for safetensors") {
  const scratch_folder folder;
  const auto reader = open_checkpoint(data::golden() / "options_no_flatten" / "checkpoint");
  if (!reader) FAIL(to_string(reader.error()));
  const auto whole = (*reader)->contents().tensors.size();
  convert_options options;
  options.format = target_format::dcp;
  CHECK(convert(**reader, folder / "copy", options));
  const auto copy = open_checkpoint(folder / "copy");
  if (!copy) FAIL(to_string(copy.error()));
  CHECK((*copy)->contents().tensors.size() == whole);
  for (std::size_t i = 0; i < (*reader)->contents().objects.size(); ++i)
    for (std::size_t k = 0; k < (*copy)->contents().objects.size(); ++k)
      if ((*copy)->contents().objects[k].key == (*reader)->contents().objects[i].key)
        CHECK((*copy)->object_archive(k).value() == (*reader)->object_archive(i).value());
  options.format = target_format::safetensors;
  CHECK(convert(**reader, folder / "apart.safetensors", options));
  const auto apart = open_checkpoint(folder / "apart.safetensors");
  if (!apart) FAIL(to_string(apart.error()));
  std::map<std::string, std::string> digests;
  for (const tensor_entry& tensor : (*apart)->contents().tensors)
    digests[tensor.key] = described(**apart, tensor)["sha256"].get<std::string>();
  const auto pairs =
      data::read_json(data::golden() / "options_no_flatten" / "expected.json")["objects"]["nested"]["value"]["$dict"];
  CHECK(digests.at("nested.t") == pairs[0][1]["$tensor"]["sha256"].get<std::string>());
  CHECK(digests.at("nested.deep.u") == pairs[2][1]["$dict"][0][1]["$tensor"]["sha256"].get<std::string>());
  CHECK((*apart)->contents().tensors.size() == whole + 2);
}

TEST_CASE("ranges and numpy values are shown by value and held whole") {
  const auto golden = data::golden() / "nested_objects" / "checkpoint";
  const auto reader = open_checkpoint(golden);
  if (!reader) FAIL(to_string(reader.error()));
  std::map<std::string, object_value> objects;
  for (std::size_t i = 0; i < (*reader)->contents().objects.size(); ++i)
    objects[(*reader)->contents().objects[i].key] = (*reader)->read_object(i).value();
  CHECK(listed(objects.at("np_array").json) ==
        listed(R"({"$other":"numpy.ndarray","dtype":"<i4","shape":[5],"values":[0,1,2,3,4],)"
               R"("data":"0000000001000000020000000300000004000000"})"));
  CHECK(listed(objects.at("np_scalar").json) ==
        listed(R"({"$other":"numpy.float64","dtype":"<f8","value":{"$float":"0x1.4000000000000p+1"},)"
               R"("data":"0000000000000440"})"));
  CHECK(torch_file::is_whole_json(objects.at("np_array").json));
  CHECK(torch_file::is_whole_json(objects.at("np_in_list").json));
  CHECK(!torch_file::is_whole_json(objects.at("namespace").json));
  CHECK(!torch_file::is_whole_json(objects.at("tuple_tensor").json));
  CHECK(torch_file::is_whole_json(R"({"$other":"builtins.range","range":[0,1,1]})"));
  CHECK(!torch_file::is_whole_json(R"({"$other":"odd\",\"range\":"})"));
  CHECK(!torch_file::is_whole_json(R"({"$other":"builtins.type","name":"os.system"})"));
}
