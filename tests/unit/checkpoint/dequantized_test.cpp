// SPDX-License-Identifier: Apache-2.0
// Compares boxes of FP8 and MXFP4 tensors, with any sharding and any form of scales, with a model that decodes one
// element at a time. See tests/oracle/dequantize.py for the comparison with PyTorch's own reader.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <random_seed.hpp>
#include <scratch_folder.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

import shardmesh.checkpoint_core;
import shardmesh.checkpoint;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

std::string folder_name(target_format to) {
  return "to_" + std::to_string(static_cast<int>(to));
}

tensor_view view_of(void* data, dtype type, const extents& sizes) {
  return {static_cast<std::byte*>(data), type, {}, sizes, contiguous_strides(sizes)};
}

// E4M3: one sign bit, four exponent bits (bias 7), three fraction bits; all ones is NaN.
float decode_e4m3(std::uint8_t code) {
  const int exponent = (code >> 3) & 15, fraction = code & 7;
  if (exponent == 15 && fraction == 7) return std::nanf("");
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                        : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  return (code & 128) != 0 ? -magnitude : magnitude;
}

// E2M1: one sign bit, two exponent bits (bias 1), one fraction bit.
float decode_e2m1(int code) {
  const int exponent = (code >> 1) & 3, fraction = code & 1;
  const float magnitude = exponent == 0 ? 0.5F * static_cast<float>(fraction)
                                        : std::ldexp(1.0F + 0.5F * static_cast<float>(fraction), exponent - 1);
  return (code & 8) != 0 ? -magnitude : magnitude;
}

// A tensor cut at random places along each dimension, with its pieces written by several ranks.
template <class V>
struct sharded {
  std::vector<V> values;
  extents sizes;
  std::vector<std::vector<V>> pieces;

  save_tensor as(const std::string& key, dtype type, std::mt19937& random, bool cut_last) {
    save_tensor made{key, {key}, sizes, {}};
    const std::size_t rank = sizes.rank();
    box piece = box::whole(sizes);
    std::vector<std::vector<std::int64_t>> cuts(rank);
    for (std::size_t d = 0; d < rank; ++d) {
      cuts[d] = {0, sizes[d]};
      if ((d + 1 < rank || cut_last) && sizes[d] > 1)
        cuts[d].push_back(std::uniform_int_distribution<std::int64_t>(1, sizes[d] - 1)(random));
      std::sort(cuts[d].begin(), cuts[d].end());
    }
    std::vector<std::size_t> at(rank);
    for (std::int32_t owner = 0;; ++owner) {
      for (std::size_t d = 0; d < rank; ++d) {
        piece.offsets[d] = cuts[d][at[d]];
        piece.sizes[d] = cuts[d][at[d] + 1] - piece.offsets[d];
      }
      std::vector<V> cells(static_cast<std::size_t>(piece.volume()));
      for (std::size_t i = 0; i < cells.size(); ++i) {
        auto left = static_cast<std::int64_t>(i);
        std::int64_t from = 0, step = 1;
        for (std::size_t d = rank; d-- > 0; left /= piece.sizes[d], step *= sizes[d])
          from += (piece.offsets[d] + left % piece.sizes[d]) * step;
        cells[i] = values[static_cast<std::size_t>(from)];
      }
      pieces.push_back(std::move(cells));
      made.parts.push_back({piece, view_of(pieces.back().data(), type, piece.sizes), owner % 3});
      std::size_t d = rank;
      while (d > 0 && at[d - 1] + 2 == cuts[d - 1].size()) at[--d] = 0;
      if (d == 0) return made;
      ++at[d - 1];
    }
  }
};

// Compares random boxes, and boxes of one element, with the model's whole tensor, bit by bit.
void check_boxes(checkpoint_reader& reader, const std::string& key, const std::vector<float>& model,
                 const extents& shape, std::mt19937& random) {
  const tensor_entry* const entry = reader.contents().find(key);
  REQUIRE(entry != nullptr);
  REQUIRE(entry->type == dtype::float32);
  REQUIRE(entry->shape == shape);
  for (int round = 0; round < 24; ++round) {
    box part = box::whole(shape);
    for (std::size_t d = 0; round > 0 && d < shape.rank(); ++d) {
      part.offsets[d] = std::uniform_int_distribution<std::int64_t>(0, shape[d] - 1)(random);
      part.sizes[d] =
          round % 6 == 1 ? 1 : std::uniform_int_distribution<std::int64_t>(1, shape[d] - part.offsets[d])(random);
    }
    const auto loaded = load_tensor(reader, key, part);
    INFO(key << " " << to_string(part) << (loaded ? std::string() : to_string(loaded.error())));
    REQUIRE(loaded);
    const auto found = loaded->values<float>();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      auto left = static_cast<std::int64_t>(i);
      std::int64_t from = 0, step = 1;
      for (std::size_t d = shape.rank(); d-- > 0; left /= part.sizes[d], step *= shape[d])
        from += (part.offsets[d] + left % part.sizes[d]) * step;
      const float wanted = model[static_cast<std::size_t>(from)];
      const bool is_same = std::isnan(wanted)
                               ? std::isnan(found[i])
                               : std::bit_cast<std::uint32_t>(wanted) == std::bit_cast<std::uint32_t>(found[i]);
      wrong += is_same ? 0 : 1;
    }
    REQUIRE(wrong == 0);
  }
}

std::unique_ptr<checkpoint_reader> open_dequantized(const fs::path& path, const dequantize_options& options = {}) {
  auto opened = dequantized(open_checkpoint(path).value(), options);
  REQUIRE(opened);
  return *std::move(opened);
}

TEST_CASE("any box of a sharded FP8 weight is its elements times the scales of their blocks") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  for (int round = 0; round < 6; ++round) {
    const std::int64_t block = round % 2 == 0 ? 128 : 5;
    const auto size = [&] { return std::uniform_int_distribution<std::int64_t>(1, round % 2 == 0 ? 300 : 23)(random); };
    sharded<std::uint8_t> weight{{}, {size(), size()}, {}};
    sharded<float> scales{{}, {(weight.sizes[0] + block - 1) / block, (weight.sizes[1] + block - 1) / block}, {}};
    for (std::int64_t i = 0; i < weight.sizes[0] * weight.sizes[1]; ++i)
      weight.values.push_back(static_cast<std::uint8_t>(random()));
    for (std::int64_t i = 0; i < scales.sizes[0] * scales.sizes[1]; ++i)
      scales.values.push_back(std::uniform_real_distribution<float>(-3.0F, 3.0F)(random));
    std::vector<float> model;
    for (std::int64_t row = 0; row < weight.sizes[0]; ++row)
      for (std::int64_t column = 0; column < weight.sizes[1]; ++column)
        model.push_back(decode_e4m3(weight.values[static_cast<std::size_t>(row * weight.sizes[1] + column)]) *
                        scales.values[static_cast<std::size_t>(row / block * scales.sizes[1] + column / block)]);
    scratch_folder scratch;
    const save_tensor tensors[] = {weight.as("m.weight", dtype::float8_e4m3fn, random, true),
                                   scales.as("m.weight_scale_inv", dtype::float32, random, true)};
    REQUIRE(save(scratch.path / "dcp", tensors, target_format::dcp));
    const auto reader = open_dequantized(scratch.path / "dcp", {.block_size = block});
    CHECK(reader->problems().empty());
    CHECK(reader->contents().tensors.size() == 1);
    check_boxes(*reader, "m.weight", model, weight.sizes, random);
  }
}

TEST_CASE("any box of sharded MXFP4 is its numbers times two to their group's exponent") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  for (int round = 0; round < 6; ++round) {
    const auto size = [&](std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(1, most)(random); };
    sharded<std::uint8_t> blocks{{}, {size(4), size(5), size(9), round % 2 == 0 ? 16 : size(7)}, {}};
    if (round == 5) blocks.sizes = {size(30), 16};
    sharded<std::uint8_t> scales{{}, blocks.sizes, {}};
    const std::size_t rank = blocks.sizes.rank();
    scales.sizes.resize(rank - 1);
    const std::int64_t group = blocks.sizes[rank - 1];
    for (std::int64_t i = 0; i < box::whole(scales.sizes).volume(); ++i)
      scales.values.push_back(static_cast<std::uint8_t>(random()));
    std::vector<float> model;
    for (std::int64_t i = 0; i < box::whole(blocks.sizes).volume(); ++i) {
      blocks.values.push_back(static_cast<std::uint8_t>(random()));
      const int exponent = scales.values[static_cast<std::size_t>(i / group)] - 127;
      model.push_back(std::ldexp(decode_e2m1(blocks.values.back() & 15), exponent));
      model.push_back(std::ldexp(decode_e2m1(blocks.values.back() >> 4), exponent));
    }
    extents shape = scales.sizes;
    shape[rank - 2] *= group * 2;
    scratch_folder scratch;
    const save_tensor tensors[] = {blocks.as("m_blocks", dtype::uint8, random, false),
                                   scales.as("m_scales", dtype::uint8, random, true)};
    REQUIRE(save(scratch.path / "dcp", tensors, target_format::dcp));
    const auto reader = open_dequantized(scratch.path / "dcp");
    CHECK(reader->problems().empty());
    CHECK(reader->contents().tensors.size() == 1);
    check_boxes(*reader, "m_blocks", model, shape, random);
  }
}

TEST_CASE("MXFP4 whose groups are cut is refused with the box of the chunk") {
  std::mt19937 random(20263);
  sharded<std::uint8_t> blocks{std::vector<std::uint8_t>(32), {2, 16}, {}},
      scales{std::vector<std::uint8_t>(2), {2}, {}};
  scratch_folder scratch;
  const save_tensor tensors[] = {blocks.as("m_blocks", dtype::uint8, random, true),
                                 scales.as("m_scales", dtype::uint8, random, false)};
  REQUIRE(save(scratch.path / "dcp", tensors, target_format::dcp));
  const auto reader = open_dequantized(scratch.path / "dcp");
  REQUIRE(reader->problems().size() == 1);
  CHECK(reader->problems()[0].key == "m_blocks");
  CHECK(reader->problems()[0].boxes.size() == 1);
  CHECK(to_string(reader->problems()[0]).find("cuts one of its groups") != std::string::npos);
}

TEST_CASE("a computed chunk is read at any byte, as the source of a file is") {
  const auto reader = open_dequantized(fs::path(SHARDMESH_TEST_DATA) / "writers" / "quantized_hf" / "checkpoint");
  for (const std::string key : {"a.weight", "experts.up_blocks"}) {
    const tensor_entry& entry = *reader->contents().find(key);
    const auto chunk = reader->open_chunk(entry, entry.first_chunk);
    REQUIRE(chunk);
    const byte_source& source = *(*chunk)->source;
    std::vector<std::byte> all(static_cast<std::size_t>(source.size_bytes())), part(1000);
    REQUIRE(source.read(0, all));
    for (std::size_t offset : {std::size_t{1}, std::size_t{2}, std::size_t{599}, all.size() - 1000})
      for (std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{997}}) {
        REQUIRE(source.read(static_cast<std::int64_t>(offset), std::span(part).first(length)));
        CHECK(std::memcmp(part.data(), all.data() + offset, length) == 0);
      }
    CHECK_FALSE(source.read(source.size_bytes() - 3, std::span(part).first(4)));
    CHECK_FALSE(source.read(-1, std::span(part).first(4)));
  }
}

// An FP8 matrix of 512 rows, and its scales.
struct large_weight {
  scratch_folder scratch;
  fs::path folder = scratch.path / "w";
  static constexpr std::array<float, 8> scale_values{1.5F, -2.0F, 3.0F, 4.0F, 5.0F, 6.0F, 7.0F, 8.0F};

  explicit large_weight(target_format to) {
    std::mt19937 random(20264);
    sharded<std::uint8_t> weight{{}, {512, 256}, {}};
    for (std::int64_t i = 0; i < 512 * 256; ++i) weight.values.push_back(static_cast<std::uint8_t>(random() % 120));
    for (std::int64_t i = 0; i < 256; ++i) weight.values[static_cast<std::size_t>(511 * 256 + i)] = 77;
    sharded<float> scales{{scale_values.begin(), scale_values.end()}, {4, 2}, {}};
    const auto whole = [](auto& of, const std::string& key, dtype type) {
      save_tensor made{key, {key}, of.sizes, {}};
      made.parts.push_back({box::whole(of.sizes), view_of(of.values.data(), type, of.sizes), 0});
      return made;
    };
    const save_tensor tensors[] = {whole(weight, "m.weight", dtype::float8_e4m3fn),
                                   whole(scales, "m.weight_scale_inv", dtype::float32)};
    REQUIRE(save(folder, tensors, to));
  }

  // Changes one byte of the first run of `length` bytes that equal `value`.
  void damage(std::byte value, std::size_t length) const { damage(std::string(length, static_cast<char>(value))); }

  void damage_scales() const {
    std::string wanted(sizeof scale_values, '\0');
    std::memcpy(wanted.data(), scale_values.data(), wanted.size());
    damage(wanted);
  }

 private:
  void damage(const std::string& wanted) const {
    for (const auto& entry : fs::recursive_directory_iterator(scratch.path)) {
      if (!entry.is_regular_file()) continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      std::string bytes{std::istreambuf_iterator<char>(file), {}};
      const std::size_t at = bytes.find(wanted);
      if (at == std::string::npos) continue;
      file.clear();
      file.seekp(static_cast<std::streamoff>(at + 3));
      file.put(static_cast<char>(wanted[3] ^ 1));
      return;
    }
    FAIL("no such bytes");
  }
};

TEST_CASE("a load of leading rows compares the checksum of the whole chunk that they are of") {
  for (const target_format to :
       {target_format::dcp, target_format::hf, target_format::pt, target_format::torch_checkpointing}) {
    const large_weight stored(to);
    const box first{{0, 0}, {128, 256}};
    CHECK(load_tensor(*open_dequantized(stored.folder, {.check_sums = true}), "m.weight", first));
    stored.damage(std::byte{77}, 256);  // behind the rows that are read
    const auto reader = open_dequantized(stored.folder, {.check_sums = true});
    const auto loaded = load_tensor(*reader, "m.weight", first);
    REQUIRE_FALSE(loaded);
    CHECK(loaded.error().code == errc::checksum_mismatch);
    CHECK(loaded.error().key == "m.weight");
    CHECK(loaded.error().boxes == std::vector{box::whole({512, 256})});
    CHECK_FALSE(load_tensor(*reader, "m.weight", first));  // a second time
    CHECK_FALSE(load_tensor(*reader, "m.weight", box{{0, 0}, {1, 1}}));
    // With `arrived`, each tensor is checked before it is reported.
    std::vector<float> values(128 * 256);
    const load_request request{"m.weight", first, view_of(values.data(), dtype::float32, {128, 256})};
    std::size_t arrived = 0;
    load_options groups;
    groups.on_arrival = [&](const std::string&) { ++arrived; };
    CHECK_FALSE(load(*open_dequantized(stored.folder, {.check_sums = true}), {&request, 1}, groups));
    CHECK(arrived == 0);
    const auto compared = diff(*reader, *reader);
    REQUIRE(compared);
    CHECK_FALSE(compared->problems.empty());
  }
}

TEST_CASE("convert that cuts a dequantized weight compares the rows that it leaves out") {
  const large_weight stored(target_format::dcp);
  std::vector<float> small(100 * 256);
  save_tensor shape{"m.weight", {"m.weight"}, {100, 256}, {}};
  shape.parts.push_back({box::whole({100, 256}), view_of(small.data(), dtype::float32, {100, 256}), 0});
  REQUIRE(save(stored.scratch.path / "like", {&shape, 1}, target_format::dcp));
  const auto like = open_checkpoint(stored.scratch.path / "like").value();
  for (const target_format to : {target_format::dcp, target_format::safetensors, target_format::pt, target_format::hf,
                                 target_format::torch_checkpointing}) {
    convert_options options;
    options.format = to;
    options.like = like.get();
    options.allow_shape_mismatch = true;
    const auto whole = open_dequantized(stored.folder, {.check_sums = true});
    const fs::path target = stored.scratch.path / folder_name(to);
    CHECK(convert(*whole, target, options));
    fs::remove_all(target);
  }
  stored.damage(std::byte{77}, 256);
  for (const target_format to : {target_format::dcp, target_format::safetensors, target_format::pt, target_format::hf,
                                 target_format::torch_checkpointing}) {
    convert_options options;
    options.format = to;
    options.like = like.get();
    options.allow_shape_mismatch = true;
    const auto whole = open_dequantized(stored.folder, {.check_sums = true});
    const fs::path target = stored.scratch.path / folder_name(to);
    const auto report = convert(*whole, target, options);
    REQUIRE_FALSE(report);
    REQUIRE(report.error().problem_count() == 1);
    CHECK(report.error().code == errc::checksum_mismatch);
    CHECK(report.error().key == "m.weight");
    CHECK_FALSE(fs::exists(target));
  }
}

TEST_CASE("the error of damaged quantized data names the weight or the scales, in every format") {
  for (const target_format to :
       {target_format::dcp, target_format::hf, target_format::pt, target_format::torch_checkpointing})
    for (const std::string key : {"m.weight", "m.weight_scale_inv"}) {
      INFO(folder_name(to) << " " << key);
      const large_weight stored(to);
      key == "m.weight" ? stored.damage(std::byte{77}, 256) : stored.damage_scales();
      const fs::path target = stored.scratch.path / "made";
      convert_options options;
      options.format = target_format::safetensors;
      const auto report = convert(*open_dequantized(stored.folder, {.check_sums = true}), target, options);
      REQUIRE_FALSE(report);
      CHECK(report.error().problem_count() == 1);
      CHECK(report.error().code == errc::checksum_mismatch);
      CHECK(report.error().key == key);
      CHECK(report.error().file.starts_with(stored.folder.string()));
      CHECK_FALSE(report.error().expected.empty());
      CHECK_FALSE(report.error().found.empty());
      CHECK(report.error().hint == "restore the file from another copy");
      CHECK_FALSE(fs::exists(target));
      const auto reader = open_checkpoint(stored.folder).value();
      const auto checked = verify(*reader);
      REQUIRE(checked);
      CHECK_FALSE(checked->problems.empty());
      for (const error& problem : checked->problems) CHECK(problem.key == key);
    }
}

TEST_CASE("a block has at least one row and column") {
  const fs::path sample = fs::path(SHARDMESH_TEST_DATA) / "writers" / "quantized_hf" / "checkpoint";
  const auto refused = dequantized(open_checkpoint(sample).value(), {.block_size = 0});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::invalid_argument);
}

}  // namespace
