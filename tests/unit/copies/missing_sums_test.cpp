// SPDX-License-Identifier: Apache-2.0
// Tests an item that the record of checksums does not name: it is not compared with another item's checksum.
#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <scratch_folder.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

import shardmesh.checkpoint_core;
import shardmesh.checkpoint;
import shardmesh.storage;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

std::vector<checksum_range> record_of(const fs::path& folder) {
  std::ifstream file(folder / std::string(checksum_file_name), std::ios::binary);
  return parse_checksums(std::string{std::istreambuf_iterator<char>(file), {}}).value();
}

}  // namespace

TEST_CASE("a checkpoint is copied whichever line is gone from its record of checksums") {
  const scratch_folder scratch;
  const fs::path folder = scratch.path / "c";
  const std::vector<std::string> keys{"a", "b", "c"};
  std::vector<std::vector<float>> values;
  std::vector<save_tensor> tensors;
  for (std::size_t i = 0; i < keys.size(); ++i) values.emplace_back(100, static_cast<float>(i));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    tensors.push_back({keys[i], {keys[i]}, {100}, {}});
    auto* const data = reinterpret_cast<std::byte*>(values[i].data());
    tensors.back().parts.push_back({box::whole({100}), {data, dtype::float32, {}, {100}, {1}}, 0});
  }
  REQUIRE(save(folder, tensors, target_format::dcp));
  const std::vector<checksum_range> whole = record_of(folder);

  for (const checksum_range& left_out : whole) {
    std::vector<checksum_range> rest;
    for (const checksum_range& range : whole)
      if (range != left_out) rest.push_back(range);
    std::ofstream(folder / std::string(checksum_file_name), std::ios::binary) << format_checksums(rest);
    INFO("without the line at " << left_out.offset);
    const fs::path copy = scratch.path / ("without_" + std::to_string(&left_out - whole.data()));
    const auto copied = convert(*open_checkpoint(folder).value(), copy, {.format = target_format::dcp});
    INFO((copied ? "" : to_string(copied.error())));
    REQUIRE(copied);
    const auto reader = open_checkpoint(copy).value();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      std::vector<float> got(100, -1);
      const load_request request{
          keys[i], box::whole({100}), {reinterpret_cast<std::byte*>(got.data()), dtype::float32, {}, {100}, {1}}};
      REQUIRE(load(*reader, {&request, 1}));
      CHECK(got == values[i]);
    }
  }
  CHECK(whole.size() > keys.size());
}
