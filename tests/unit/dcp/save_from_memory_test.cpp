// SPDX-License-Identifier: Apache-2.0
// Compares a folder written from memory without copies with the same folder written through slabs, as for any source.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <random_seed.hpp>
#include <scratch_folder.hpp>
#include <span>
#include <string>
#include <vector>

import shardmesh.dcp;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

std::map<std::string, std::string> files_of(const fs::path& folder) {
  std::map<std::string, std::string> all;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    all[entry.path().filename().string()] = {std::istreambuf_iterator<char>(file), {}};
  }
  return all;
}

// Tensors cut like flat parameters: each of two ranks has the end of a row, whole rows, and the beginning of a row.
struct flat_tensors {
  std::vector<std::vector<std::byte>> memory;
  view_source source;
  std::vector<output_tensor> tensors;

  explicit flat_tensors(std::mt19937& random) {
    for (const dtype type : {dtype::float32, dtype::bfloat16, dtype::uint8, dtype::float64}) {
      const extents shape{331, 1 + static_cast<std::int64_t>(random() % 900)};
      const auto row = static_cast<std::int64_t>(random() % 330),
                 column = static_cast<std::int64_t>(random()) % shape[1];
      output_tensor made;
      made.key = std::string(name(type));
      made.where = path{made.key};
      made.type = made.bytes.from_type = made.bytes.to_type = type;
      distribution_builder parts(shape, owner_space::items);
      const auto add = [&](const box& where, std::int32_t rank) {
        if (where.is_empty()) return;
        auto& bytes = memory.emplace_back(static_cast<std::size_t>(where.volume() * item_bytes(type)));
        for (std::byte& b : bytes) b = static_cast<std::byte>(random());
        parts.add(0, static_cast<std::int32_t>(source.views.size()), where.offsets, where.sizes);
        source.views.push_back({bytes.data(), type, {}, where.sizes, contiguous_strides(where.sizes)});
        made.chunks.push_back({where, rank});
      };
      add({{0, 0}, {row, shape[1]}}, 0);
      add({{row, 0}, {1, column}}, 0);
      add({{row, column}, {1, shape[1] - column}}, 1);
      add({{row + 1, 0}, {331 - row - 1, shape[1]}}, 1);
      made.bytes.from = parts.finish().value();
      tensors.push_back(std::move(made));
    }
  }
};

}  // namespace

TEST_CASE("a folder written from memory without copies is byte for byte the one that went through slabs") {
  const scratch_folder scratch;
  const auto seed = static_cast<std::uint32_t>(random_seed::seed());
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937 random(seed);
  flat_tensors state(random);
  const save_options options{.durable = false, .threads = 2};
  REQUIRE(dcp::save(scratch.path / "direct", state.tensors, {}, state.source, dcp::new_extras(), options));
  REQUIRE(
      dcp::save(scratch.path / "slabs", state.tensors, {}, any_item_source(state.source), dcp::new_extras(), options));
  const auto direct = files_of(scratch.path / "direct"), slabs = files_of(scratch.path / "slabs");
  CHECK(direct.size() == 4);  // the files of two ranks, the metadata, and the checksums
  CHECK(direct == slabs);
}
