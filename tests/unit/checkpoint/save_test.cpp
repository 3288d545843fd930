// SPDX-License-Identifier: Apache-2.0
// Saves from memory in every format and loads the result, on one rank. tests/distributed does it with many.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <random>
#include <scratch_folder.hpp>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

import shardmesh.checkpoint;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

tensor_view view_of(std::vector<std::int32_t>& values, const extents& sizes, const extents& strides) {
  return {reinterpret_cast<std::byte*>(values.data()), dtype::int32, {}, sizes, strides};
}

}  // namespace

TEST_CASE("what is saved from memory is loaded again, cut and strided at will, in every format") {
  const scratch_folder scratch;
  std::vector<std::int32_t> values(7 * 5);
  std::iota(values.begin(), values.end(), 0);
  const tensor_view whole = view_of(values, {7, 5}, {5, 1});
  const box top{{0, 0}, {3, 5}}, left{{3, 0}, {4, 2}}, right{{3, 2}, {4, 3}};
  save_tensor tensor{"layers.0.weight", {"layers", 0, "weight"}, {7, 5}, {}};
  for (const auto& [where, rank] : {std::pair{top, 0}, std::pair{left, 1}, std::pair{right, 2}})
    tensor.parts.push_back({where, subview(whole, where), rank});
  for (const auto& [format, name] :
       {std::pair{target_format::dcp, "dcp"}, std::pair{target_format::safetensors, "one.safetensors"},
        std::pair{target_format::hf, "hf"}, std::pair{target_format::pt, "one.pt"},
        std::pair{target_format::torch_checkpointing, "ranks"}}) {
    const auto report = save(scratch.path / name, {&tensor, 1}, format);
    INFO((report ? "" : to_string(report.error())));
    REQUIRE(report);
    auto reader = open_checkpoint(scratch.path / name).value();
    CHECK(verify(*reader).value().ok());
    const host_tensor loaded = load_tensor(*reader, "layers.0.weight").value();
    CHECK(std::memcmp(loaded.bytes().data(), values.data(), values.size() * 4) == 0);
    const host_tensor column = load_tensor(*reader, "layers.0.weight", {{1, 4}, {5, 1}}).value();
    CHECK(reinterpret_cast<const std::int32_t*>(column.bytes().data())[2] == 3 * 5 + 4);
  }
  CHECK(fs::exists(scratch.path / "dcp" / "__2_0.distcp"));
}

TEST_CASE("tensors that are written in several pieces are what they were, and their checksums those of all pieces") {
  const scratch_folder scratch;
  std::vector<std::vector<std::uint8_t>> values;
  std::vector<save_tensor> tensors;
  std::mt19937 dice(3);
  for (const std::int64_t size : {0, 1, (512 << 10) - 1, (512 << 10) + 64, 1300021, (8 << 20) + 3}) {
    auto& bytes = values.emplace_back(static_cast<std::size_t>(size));
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(dice());
    const tensor_view whole{reinterpret_cast<std::byte*>(bytes.data()), dtype::uint8, {}, {size}, {1}};
    tensors.push_back({"t" + std::to_string(size), {}, {size}, {{{{0}, {size}}, whole, 0}}});
  }
  for (const auto& [format, name] :
       {std::pair{target_format::dcp, "dcp"}, std::pair{target_format::safetensors, "one.safetensors"},
        std::pair{target_format::hf, "hf"}, std::pair{target_format::pt, "one.pt"},
        std::pair{target_format::torch_checkpointing, "ranks"}}) {
    INFO(name);
    REQUIRE(save(scratch.path / name, tensors, format));
    auto reader = open_checkpoint(scratch.path / name).value();
    const verify_report report = verify(*reader).value();
    CHECK(report.ok());
    CHECK(report.unchecked_chunks == 0);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const host_tensor loaded = load_tensor(*reader, tensors[i].key).value();
      REQUIRE(loaded.bytes().size() == values[i].size());
      CHECK(
          std::equal(values[i].begin(), values[i].end(), reinterpret_cast<const std::uint8_t*>(loaded.bytes().data())));
    }
  }
}

TEST_CASE("a tensor without elements is read again, however large its other sizes are") {
  const scratch_folder scratch;
  std::vector<std::int32_t> none;
  const extents sizes{std::int64_t{1} << 62, 0, 4};
  const save_tensor tensor{"w", {}, sizes, {{box::whole(sizes), view_of(none, sizes, {4, 4, 1}), 0}}};
  for (const auto& [format, name] :
       {std::pair{target_format::dcp, "dcp"}, std::pair{target_format::safetensors, "one.safetensors"},
        std::pair{target_format::hf, "hf"}, std::pair{target_format::pt, "one.pt"},
        std::pair{target_format::torch_checkpointing, "ranks"}}) {
    INFO(name);
    REQUIRE(save(scratch.path / name, {&tensor, 1}, format));
    auto reader = open_checkpoint(scratch.path / name).value();
    const verify_report verified = verify(*reader).value();
    for (const error& problem : verified.problems) UNSCOPED_INFO(to_string(problem));
    CHECK(verified.ok());
    CHECK(reader->contents().find("w")->shape == sizes);
  }
}

TEST_CASE("before what is written is put in place a save asks once more whether to go on, in every format") {
  const scratch_folder scratch;
  std::vector<std::int32_t> values(7 * 5, 3), old(7 * 5, 4);
  const auto saved = [&](std::vector<std::int32_t>& from) {
    return save_tensor{"w", {}, {7, 5}, {{{{0, 0}, {7, 5}}, view_of(from, {7, 5}, {5, 1}), 0}}};
  };
  for (const auto& [format, name] :
       {std::pair{target_format::dcp, "dcp"}, std::pair{target_format::safetensors, "one.safetensors"},
        std::pair{target_format::hf, "hf"}, std::pair{target_format::pt, "one.pt"},
        std::pair{target_format::torch_checkpointing, "ranks"}}) {
    INFO(name);
    REQUIRE(save(scratch.path / name, {{saved(old)}}, format));
    std::stop_source stop;
    std::int64_t moved = 0, asked = 0;
    save_options options{.overwrite = true, .cancel = stop.get_token()};
    options.progress = [&](std::int64_t bytes) { moved += bytes; };
    options.hooks.before_commit = [&] { asked += moved == 7 * 5 * 4 ? 1 : 100, stop.request_stop(); };
    const auto report = save(scratch.path / name, {{saved(values)}}, format, options);
    REQUIRE_FALSE(report);
    REQUIRE(report.error().problem_count() == 1);
    CHECK(report.error().code == errc::cancelled);
    CHECK(asked == 1);
    const auto kept = load_tensor(*open_checkpoint(scratch.path / name).value(), "w").value();
    CHECK(std::memcmp(kept.bytes().data(), old.data(), old.size() * 4) == 0);
    fs::remove_all(scratch.path / name);
    CHECK(fs::is_empty(scratch.path));
  }
}

TEST_CASE("parts that do not tile their tensor are refused with key and box, and nothing is written") {
  const scratch_folder scratch;
  std::vector<std::int32_t> values(4);
  const save_tensor tensor{"w", {}, {3, 2}, {{{{0, 0}, {2, 2}}, view_of(values, {2, 2}, {2, 1}), 0}}};
  const auto report = save(scratch.path / "out", {&tensor, 1});
  REQUIRE_FALSE(report);
  REQUIRE(report.error().problem_count() == 1);
  CHECK(to_string(report.error()) == "w: no chunk holds these cells in [2:3, 0:2)");
  CHECK(fs::is_empty(scratch.path));
}

TEST_CASE("a load names the key that is missing and the box that does not fit") {
  const scratch_folder scratch;
  std::vector<std::int32_t> values(4);
  const save_tensor tensor{"w", {}, {2, 2}, {{{{0, 0}, {2, 2}}, view_of(values, {2, 2}, {2, 1}), 0}}};
  REQUIRE(save(scratch.path / "out", {&tensor, 1}));
  auto reader = open_checkpoint(scratch.path / "out").value();
  const auto missing = load_tensor(*reader, "v");
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code == errc::missing_key);
  CHECK(missing.error().key == "v");
  const auto outside = load_tensor(*reader, "w", {{1, 0}, {2, 2}});
  REQUIRE_FALSE(outside);
  CHECK(to_string(outside.error()).find("w: the requested box does not fit the stored shape in [1:3, 0:2)") !=
        std::string::npos);
}

TEST_CASE("a .pt file is a nested dict: indices are positions of lists, and what cannot be one is refused") {
  const scratch_folder scratch;
  std::vector<std::int32_t> values{1, 2, 3};
  const auto at = [&](const char* key, const path& where) {
    return save_tensor{key, where, {3}, {{{{0}, {3}}, view_of(values, {3}, {1}), 0}}};
  };
  const std::vector<save_tensor> state{at("a.b.c", {"a.b", "c"}), at("l.2", {"l", 2}), at("empty.0", {"empty", 0})};
  REQUIRE(save(scratch.path / "state.pt", state, target_format::pt));
  auto reader = open_checkpoint(scratch.path / "state.pt").value();
  std::vector<path> paths;
  for (const tensor_entry& tensor : reader->contents().tensors) paths.push_back(tensor.where);
  CHECK(paths == std::vector<path>{{"a.b", "c"}, {"l", 2}, {"empty", 0}});
  CHECK(reader->contents().objects.size() == 2);  // None, twice
  const auto refused = [&](const std::vector<save_tensor>& tensors) {
    const auto report = save(scratch.path / "refused.pt", tensors, target_format::pt);
    REQUIRE_FALSE(report);
    REQUIRE(report.error().problem_count() == 1);
    CHECK_FALSE(fs::exists(scratch.path / "refused.pt"));
    return report.error().code;
  };
  CHECK(refused({at("l", {"l", std::int64_t{1} << 40})}) == errc::invalid_argument);
  CHECK(refused({at("a", {"x", "y"}), at("b", {"x", "y"})}) == errc::duplicate_key);
  CHECK(refused({at("a", {"x"}), at("b", {"x", "y"})}) == errc::invalid_argument);
}
