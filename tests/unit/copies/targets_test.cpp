// SPDX-License-Identifier: Apache-2.0
// Tests the table of formats that can be written: look-up by name and by extension, and `skip_objects` in each format.
#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <filesystem>
#include <scratch_folder.hpp>
#include <string>
#include <vector>

import shardmesh.checkpoint;

using namespace shardmesh;
namespace fs = std::filesystem;

TEST_CASE("a format is found by its number, its name and, where it is one file, its extension") {
  std::vector<std::string> names;
  for (const target& one : targets()) {
    CHECK(&target_of(one.format) == &one);
    CHECK(find_target(one.name) == &one);
    CHECK(target_by_extension("out" + std::string(one.extension)) == (one.extension.empty() ? nullptr : &one));
    names.emplace_back(one.name);
  }
  CHECK(names == std::vector<std::string>{"dcp", "safetensors", "hf", "pt", "torch-checkpointing", "gguf", "npz"});
  CHECK(target_names() == "dcp, safetensors, hf, pt, torch-checkpointing, gguf, or npz");
  CHECK(target_names("--to ") ==
        "--to dcp, --to safetensors, --to hf, --to pt, --to torch-checkpointing, --to gguf, or --to npz");
  for (const char* name : {"", "torch", "DCP", "safetensors ", ".pt"}) CHECK(find_target(name) == nullptr);
  for (const char* path : {"", "out", "out.pt/", "out.pth", ".pt", "pt"}) CHECK(target_by_extension(path) == nullptr);
}

TEST_CASE("objects lie beside tensors where the format holds tensors alone") {
  const auto file = [](target_format format, const char* path) { return objects_file(target_of(format), path); };
  CHECK(file(target_format::hf, "a/out") == "a/out/objects.json");
  CHECK(file(target_format::safetensors, "a/out.safetensors") == "a/out.objects.json");
  for (const auto format : {target_format::dcp, target_format::pt, target_format::torch_checkpointing,
                            target_format::gguf, target_format::npz})
    CHECK(file(format, "a/out").empty());
}

TEST_CASE("objects are left out, and counted, in every format") {
  const fs::path sample = fs::path(SHARDMESH_TEST_DATA) / "golden" / "era_torch_2.15.0" / "checkpoint";
  const scratch_folder scratch;
  for (const target& one : targets()) {
    INFO(one.name);
    const auto reader = open_checkpoint(sample).value();
    const std::size_t tensors = reader->contents().tensors.size(), objects = reader->contents().objects.size();
    REQUIRE(objects > 0);
    const fs::path out = scratch.path / (std::string(one.name) + std::string(one.extension));
    convert_options options{.format = one.format, .skip_objects = true};
    if (one.format == target_format::npz)  // NumPy has no bfloat16
      options.selection.cast.push_back(parse_cast_rule("float32").value());
    const auto made = convert(*reader, out, options);
    INFO((made ? "" : to_string(made.error())));
    REQUIRE(made);
    CHECK(made->skipped_objects == static_cast<std::int64_t>(objects));
    const auto copy = open_checkpoint(out).value();
    CHECK(copy->contents().tensors.size() == tensors);
    CHECK(copy->contents().objects.empty());
  }
}
