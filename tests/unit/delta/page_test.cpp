// SPDX-License-Identifier: Apache-2.0
// The program of docs/delta.md, and what a rank reads of a delta.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <dice.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <scratch_folder.hpp>
#include <shardmesh/try.hpp>
#include <string>
#include <utility>
#include <vector>

#include "counting_reader.hpp"
#include "delta_models.hpp"

import shardmesh.state_checkpoint;

namespace {

namespace sm = shardmesh;

sm::result<void> send(const std::filesystem::path& before, const std::filesystem::path& after) {
  SHARDMESH_TRY(const auto base, sm::open_checkpoint(before));
  SHARDMESH_TRY(const auto next, sm::open_checkpoint(after));
  SHARDMESH_TRY(const sm::delta_report report, sm::save_delta(*base, *next, after.string() + ".delta", {.level = -7}));
  fmt::print("bytes: {} of {}, changed tensors: {}\n", report.delta_bytes, report.bytes, report.changed);
  return {};
}

sm::result<sm::checkpoint> receive(const std::filesystem::path& copy, const std::filesystem::path& file) {
  SHARDMESH_TRY(auto base, sm::open_checkpoint(copy));  // of any format, with any chunks
  SHARDMESH_TRY(auto reader, sm::open_delta(std::move(base), file));
  return sm::checkpoint(std::move(reader));
}

}  // namespace

using namespace shardmesh;
using delta_models::tensors;

TEST_CASE("the program of the page sends and receives a checkpoint") {
  const scratch_folder folder;
  dice random(19);
  tensors base, next;
  base["w"] = delta_models::random_tensor(random, dtype::bfloat16, {64, 32});
  next = base;
  next["w"].bytes[100] ^= std::byte{1};
  delta_models::write(folder / "100", base, 4);
  delta_models::write(folder / "200", next, 4);
  send(folder / "100", folder / "200").value();
  const checkpoint made = receive(folder / "100", folder / "200.delta").value();
  const host_tensor loaded = made.load("w").value();
  CHECK(std::vector<std::byte>(loaded.bytes().begin(), loaded.bytes().end()) == next["w"].bytes);
  const auto mesh = device_mesh::make({2}).value();
  const std::vector<placement_rule> rules{parse_placement_rule(".*=S(0)").value()};
  const auto state = made.state_dict<host_tensor>(mesh, rules, 1).value();
  CHECK(state.size() == 1);
}

TEST_CASE("a read of a box reads the blocks that it meets, and no others, from the base") {
  const scratch_folder folder;
  dice random(23);
  tensors base, next;
  base["w"] = delta_models::random_tensor(random, dtype::uint8, {16, 128});
  next = base;
  for (std::size_t row = 0; row < 16; ++row) next["w"].bytes[row * 128] ^= std::byte{1};
  delta_models::write(folder / "base.safetensors", base);
  delta_models::write(folder / "next.safetensors", next);
  delta_models::try_delta(folder / "base.safetensors", folder / "next.safetensors", folder / "d", {.block_bytes = 128})
      .value();
  const auto count = std::make_shared<std::atomic<std::int64_t>>(0);
  auto counted = std::make_unique<counting_reader>(delta_models::opened(folder / "base.safetensors"), count);
  const auto reader = open_delta(std::move(counted), folder / "d").value();
  CHECK(count->load() == 0);
  const tensor_entry& entry = reader->contents().tensors.front();
  const box rows{{4, 0}, {3, 128}};
  CHECK(delta_models::read(*reader, entry, rows).value().bytes == delta_models::part_of(next["w"], rows));
  CHECK(count->load() == 3 * 128);
  *count = 0;
  const box cell{{9, 7}, {1, 1}};
  CHECK(delta_models::read(*reader, entry, cell).value().bytes == delta_models::part_of(next["w"], cell));
  CHECK(count->load() == 128);
  CHECK(delta_models::read(*reader, entry, cell).value().bytes == delta_models::part_of(next["w"], cell));
  CHECK(count->load() == 128);  // the block is kept
}
