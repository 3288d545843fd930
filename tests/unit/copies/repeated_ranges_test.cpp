// SPDX-License-Identifier: Apache-2.0
// Tests a file region that many entries, or many lines of the record of checksums, name: it is not read once for each.
#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <scratch_folder.hpp>
#include <string>
#include <vector>

import shardmesh.checkpoint_core;
import shardmesh.checkpoint;
import shardmesh.storage;

using namespace shardmesh;
namespace fs = std::filesystem;

TEST_CASE("a record of checksums that names bytes twice is damaged") {
  const scratch_folder scratch;
  std::vector<float> values(1000, 1.5F);
  save_tensor tensor{"w", {"w"}, {1000}, {}};
  tensor.parts.push_back(
      {box::whole({1000}), {reinterpret_cast<std::byte*>(values.data()), dtype::float32, {}, {1000}, {1}}, 0});
  const fs::path folder = scratch.path / "hf";
  REQUIRE(save(folder, {&tensor, 1}, target_format::hf));
  REQUIRE(verify(*open_checkpoint(folder).value()).value().ok());
  const std::string name = "model.safetensors";
  const auto length = static_cast<std::int64_t>(fs::file_size(folder / name));
  const std::string zeros(32, '0');
  const std::vector<std::vector<checksum_range>> records{
      {{name, 0, length, zeros}, {name, 0, length, zeros}},
      {{name, 0, 100, zeros}, {name, 99, length - 99, zeros}},
      {{name, 50, length - 50, zeros}, {name, 0, 51, zeros}},
      {{name, 0, INT64_MAX, zeros}, {name, 1, INT64_MAX, zeros}},
  };
  for (const auto& ranges : records) {
    std::ofstream(folder / std::string(checksum_file_name), std::ios::binary) << format_checksums(ranges);
    const auto reader = open_checkpoint(folder).value();
    const verify_report report = verify(*reader).value();
    REQUIRE_FALSE(report.ok());
    CHECK(report.problems[0].message == "the checksum record names bytes of model.safetensors twice");
    CHECK(report.problems[0].file == (folder / std::string(checksum_file_name)).string());
    CHECK_FALSE(convert(*reader, scratch.path / "copy", {.format = target_format::dcp}));
    CHECK_FALSE(fs::exists(scratch.path / "copy"));
  }
}
