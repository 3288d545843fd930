// SPDX-License-Identifier: Apache-2.0
// Counts the bytes that transposed tensors read of their sources: whole, in slabs of rows, in boxes, through a chain of
// mappings, and by a conversion with little memory.
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <dice.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <random_seed.hpp>
#include <scratch_folder.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "counting_reader.hpp"
#include "small_tensors.hpp"

import shardmesh.checkpoint;
import shardmesh.mapping;

using namespace shardmesh;
using small_tensors::counted;
using small_tensors::tensor;

namespace {

struct transpose {
  std::string_view index;          // of a rule from w to t
  extents shape;                   // of w
  std::vector<std::size_t> order;  // dimension d of t is dimension order[d] of w
};

const std::vector<transpose>& transposes() {
  static const std::vector<transpose> all{
      {"w: r c -> t: c r", {1500, 2000}, {1, 0}},         {"w: r c -> t: c r", {20'000, 130}, {1, 0}},
      {"w: r c -> t: c r", {130, 20'000}, {1, 0}},        {"w: a b c -> t: c b a", {96, 130, 200}, {2, 1, 0}},
      {"w: a b c -> t: a c b", {6, 700, 600}, {0, 2, 1}}, {"w: a b c d -> t: d a c b", {12, 20, 40, 250}, {3, 0, 2, 1}},
  };
  return all;
}

extents shape_of(const transpose& one) {
  extents made;
  for (const std::size_t d : one.order) made.push_back(one.shape[d]);
  return made;
}

// The elements of a box of the transposed tensor, if those of w count up from 0. They are below 2^24, so exact.
tensor expected_part(const transpose& one, const box& part) {
  const extents strides = contiguous_strides(one.shape);
  tensor made{part.sizes, {}};
  const auto walk = [&](auto& self, std::size_t d, std::int64_t at) -> void {
    if (d == part.rank()) return made.values.push_back(static_cast<float>(at));
    for (std::int64_t i = 0; i < part.sizes[d]; ++i)
      self(self, d + 1, at + (part.offsets[d] + i) * strides[one.order[d]]);
  };
  walk(walk, 0, 0);
  return made;
}

struct shown {
  std::unique_ptr<checkpoint_reader> reader;
  byte_count bytes = std::make_shared<std::atomic<std::int64_t>>(0);
};

shown show(const std::filesystem::path& file, const transpose& one, std::int64_t cuts = 1) {
  small_tensors::tensors all{{"w", counted(one.shape)}};
  small_tensors::write(file, all, cuts);
  shown made;
  std::unique_ptr<checkpoint_reader> inner =
      std::make_unique<counting_reader>(open_checkpoint(file).value(), made.bytes);
  const std::string text =
      "left = 'a'\nright = 'b'\n[[rule]]\nleft = 'w'\nright = 't'\nindex = '" + std::string(one.index) + "'\n";
  auto bound = bind_mapping(parse_mapping(text).value(), inner->contents(), {}).value();
  made.reader = mapped(std::move(inner), std::move(bound)).value();
  return made;
}

}  // namespace

TEST_CASE("a transposed tensor that is read whole reads each byte of its source about once") {
  const scratch_folder folder;
  for (const transpose& one : transposes())
    for (const bool is_dcp : {false, true}) {
      INFO(one.index << " of " << to_string(one.shape));
      const std::filesystem::path file = folder / (is_dcp ? "w" : "w.safetensors");
      const shown made = show(file, one, 3);
      const box whole = box::whole(shape_of(one));
      CHECK((small_tensors::read(*made.reader, "t", whole) == expected_part(one, whole)));
      CHECK(made.bytes->load() * 10 <= whole.volume() * 4 * 11);
      std::filesystem::remove_all(file);
    }
}

TEST_CASE("rows of a transposed tensor read about their own bytes") {
  const scratch_folder folder;
  const transpose& one = transposes()[0];
  const shown made = show(folder / "w.safetensors", one);
  const extents shape = shape_of(one);
  const std::int64_t rows = 100;  // runs of 400 bytes in the source
  for (std::int64_t row = 0; row < shape[0]; row += rows) {
    const box part{{row, 0}, {rows, shape[1]}};
    CHECK((small_tensors::read(*made.reader, "t", part) == expected_part(one, part)));
  }
  CHECK(made.bytes->load() * 10 <= box::whole(shape).volume() * 4 * 11);
}

TEST_CASE("a box of a transposed tensor reads bytes in proportion to its own") {
  dice roll(random_seed::seed());
  INFO("SHARDMESH_SEED=" << random_seed::seed());
  const scratch_folder folder;
  const transpose& one = transposes()[0];
  const shown made = show(folder / "w.safetensors", one);
  const extents shape = shape_of(one);
  for (int round = 0; round < 40; ++round) {
    // At least 64 rows, which are runs of 256 bytes in the source.
    box part{{roll.below(shape[0] - 64), roll.below(shape[1])}, {0, 0}};
    part.sizes = {64 + roll.below(shape[0] - part.offsets[0] - 63), 1 + roll.below(shape[1] - part.offsets[1])};
    *made.bytes = 0;
    CHECK((small_tensors::read(*made.reader, "t", part) == expected_part(one, part)));
    INFO(to_string(part));
    CHECK(made.bytes->load() * 4 <= part.volume() * 4 * 5);
  }
}

TEST_CASE("a column of a transposed tensor is a row of its source") {
  const scratch_folder folder;
  const transpose& one = transposes()[0];
  const shown made = show(folder / "w.safetensors", one);
  const box column{{0, 7}, {shape_of(one)[0], 1}};
  CHECK((small_tensors::read(*made.reader, "t", column) == expected_part(one, column)));
  CHECK(made.bytes->load() == column.volume() * 4);
}

TEST_CASE("a conversion of a transposed tensor with 16 MiB of memory reads each byte about once") {
  const scratch_folder folder;
  const transpose& one = transposes()[0];
  const shown made = show(folder / "w.safetensors", one);
  convert_options options;
  options.durable = false;
  options.memory_bytes = std::int64_t{16} << 20;
  options.threads = 1;
  convert(*made.reader, folder / "t.safetensors", options).value();
  const box whole = box::whole(shape_of(one));
  CHECK(made.bytes->load() * 10 <= whole.volume() * 4 * 11);
  const auto written = open_checkpoint(folder / "t.safetensors").value();
  CHECK((small_tensors::read(*written, "t", whole) == expected_part(one, whole)));
}

TEST_CASE("a transpose of a transpose reads each byte about once, and converts") {
  const scratch_folder folder;
  shown made = show(folder / "w.safetensors", transposes()[0]);
  auto bound =
      bind_mapping(
          parse_mapping("left = 'b'\nright = 'c'\n[[rule]]\nleft = 't'\nright = 'u'\nindex = 't: c r -> u: r c'\n")
              .value(),
          made.reader->contents(), {})
          .value();
  const auto twice = mapped(std::move(made.reader), std::move(bound)).value();
  const extents& shape = transposes()[0].shape;
  CHECK((small_tensors::read(*twice, "u", box::whole(shape)) == counted(shape)));
  CHECK(made.bytes->load() * 10 <= box::whole(shape).volume() * 4 * 11);
  // In another dtype, the elements go through memory of this library: tile by tile.
  *made.bytes = 0;
  std::vector<double> wide(static_cast<std::size_t>(box::whole(shape).volume()));
  load_into(
      *twice, "u", box::whole(shape),
      tensor_view{reinterpret_cast<std::byte*>(wide.data()), dtype::float64, {}, shape, contiguous_strides(shape)})
      .value();
  std::vector<double> expected(wide.size());
  std::iota(expected.begin(), expected.end(), 0.0);
  CHECK((wide == expected));
  CHECK(made.bytes->load() * 10 <= box::whole(shape).volume() * 4 * 11);
}

TEST_CASE("repetitions of a transposed tensor are compared, each read about once") {
  const scratch_folder folder;
  // w has each column of t three times.
  const extents shape{900, 1200};
  small_tensors::tensors all{{"w", counted({900, 400})}};
  tensor repeated{shape, {}};
  for (std::int64_t row = 0; row < 900; ++row)
    for (std::int64_t column = 0; column < 1200; ++column)
      repeated.values.push_back(all.at("w").values[static_cast<std::size_t>(row * 400 + column / 3)]);
  small_tensors::tensors source{{"w", repeated}};
  small_tensors::write(folder / "w.safetensors", source);
  const auto bytes = std::make_shared<std::atomic<std::int64_t>>(0);
  std::unique_ptr<checkpoint_reader> inner =
      std::make_unique<counting_reader>(open_checkpoint(folder / "w.safetensors").value(), bytes);
  const auto rules = parse_mapping(
                         "left = 'a'\nright = 'b'\n[sizes]\nn = 3\nr = 900\nc = 400\n[[rule]]\nleft = 'w'\nright = "
                         "'t'\nindex = 'w: r (c n*) -> t: c r'\n")
                         .value();
  auto bound = bind_mapping(rules, inner->contents(), {}).value();
  const auto reader = mapped(std::move(inner), std::move(bound)).value();
  const tensor made = small_tensors::read(*reader, "t", box::whole({400, 900}));
  tensor expected{{400, 900}, {}};
  for (std::int64_t column = 0; column < 400; ++column)
    for (std::int64_t row = 0; row < 900; ++row)
      expected.values.push_back(all.at("w").values[static_cast<std::size_t>(row * 400 + column)]);
  CHECK((made == expected));
  // Each of the three reads covers the interleaved repetitions.
  CHECK(bytes->load() <= 3 * 900 * 1200 * 4 * 11 / 10);
}
