// SPDX-License-Identifier: Apache-2.0
// Compares boxes that are read from a source on a server with a walk over every element, and counts the requests.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <random_seed.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

import shardmesh.checkpoint_core;

using namespace shardmesh;

namespace {

// int32 numbers from 0 on, as a source whose requests cost as much as some bytes. Notes every call and its ranges.
class far_source final : public byte_source {
 public:
  far_source(std::int64_t count, std::int64_t bytes_per_request)
      : values_(static_cast<std::size_t>(count)), bytes_per_request_(bytes_per_request) {
    std::iota(values_.begin(), values_.end(), 0);
  }
  std::int64_t size_bytes() const override { return std::ssize(values_) * 4; }
  std::string name() const override { return "far"; }
  std::int64_t bytes_per_request() const override { return bytes_per_request_; }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const override {
    const source_range one{offset, out};
    return read_ranges({&one, 1});
  }
  result<void> read_ranges(std::span<const source_range> ranges) const override {
    ++calls;
    for (const source_range& one : ranges) {
      if (one.offset < 0 || one.offset + std::ssize(one.out) > size_bytes())
        return fail(errc::out_of_bounds, "outside of the source");
      std::memcpy(one.out.data(), reinterpret_cast<const std::byte*>(values_.data()) + one.offset, one.out.size());
      asked.emplace_back(one.offset, std::ssize(one.out));
    }
    return {};
  }
  std::int64_t bytes_read() const {
    std::int64_t sum = 0;
    for (const auto& [offset, length] : asked) sum += length;
    return sum;
  }

  mutable int calls = 0;
  mutable std::vector<std::pair<std::int64_t, std::int64_t>> asked;  // offset and length, in bytes

 private:
  std::vector<std::int32_t> values_;
  std::int64_t bytes_per_request_;
};

// A tensor with permuted strides, sometimes with gaps, sometimes expanded. Sets the number of elements that it needs.
stored_tensor random_tensor(std::mt19937_64& random, std::int64_t& span) {
  const std::size_t rank = random() % 4;
  stored_tensor tensor;
  tensor.type = dtype::int32;
  std::vector<std::size_t> order(rank);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  tensor.sizes = tensor.strides = extents::filled(rank, 0);
  for (std::size_t d = 0; d < rank; ++d) tensor.sizes[d] = 1 + static_cast<std::int64_t>(random() % 9);
  std::int64_t step = 1;
  for (const std::size_t d : order) {
    const bool is_expanded = random() % 8 == 0;
    tensor.strides[d] = is_expanded ? 0 : step;
    if (!is_expanded) step = step * tensor.sizes[d] + static_cast<std::int64_t>(random() % 2);
  }
  tensor.storage_offset = static_cast<std::int64_t>(random() % 5);
  span = tensor.storage_offset + step + 8;
  tensor.size_bytes = span * 4;
  return tensor;
}

box random_part(std::mt19937_64& random, const extents& sizes) {
  box part{extents::filled(sizes.rank(), 0), extents::filled(sizes.rank(), 0)};
  for (std::size_t d = 0; d < sizes.rank(); ++d) {
    part.offsets[d] = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(sizes[d]));
    part.sizes[d] = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(sizes[d] - part.offsets[d] + 1));
  }
  return part;
}

std::vector<std::int32_t> walked(const stored_tensor& tensor, const box& part) {
  std::vector<std::int32_t> values;
  const auto walk = [&](auto& self, std::size_t d, std::int64_t at) -> void {
    if (d == part.rank()) return values.push_back(static_cast<std::int32_t>(at));
    for (std::int64_t i = 0; i < part.sizes[d]; ++i) self(self, d + 1, at + (part.offsets[d] + i) * tensor.strides[d]);
  };
  if (!part.is_empty()) walk(walk, 0, tensor.storage_offset);
  return values;
}

tensor_view view_of(std::vector<std::int32_t>& values, const extents& sizes) {
  return {reinterpret_cast<std::byte*>(values.data()), dtype::int32, {}, sizes, contiguous_strides(sizes)};
}

}  // namespace

TEST_CASE("any box of any strided tensor on a server is right, whatever a request costs") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (std::uint64_t round = 0; round < random_seed::rounds(500); ++round) {
    std::int64_t span = 0;
    const stored_tensor tensor = random_tensor(random, span);
    const far_source source(span, 1 + static_cast<std::int64_t>(random() % 200));
    const box part = random_part(random, tensor.sizes);
    std::vector<std::int32_t> got(static_cast<std::size_t>(part.volume()), -1);
    REQUIRE(read_box(source, tensor, part, view_of(got, part.sizes)));
    CHECK(got == walked(tensor, part));
    CHECK(source.calls <= 1);
  }
}

TEST_CASE("a gap is read through if it costs less than a request, and else left out") {
  constexpr std::int64_t rows = 100, columns = 1000, part_columns = 10;
  const stored_tensor tensor = contiguous_stored_tensor(dtype::int32, {rows, columns}, 0, rows * columns * 4);
  const box part{{0, 500}, {rows, part_columns}};
  constexpr std::int64_t gap = (columns - part_columns) * 4, run = part_columns * 4;
  for (const std::int64_t cost : {gap - 1, gap}) {
    const far_source source(rows * columns, cost);
    std::vector<std::int32_t> got(static_cast<std::size_t>(part.volume()));
    REQUIRE(read_box(source, tensor, part, view_of(got, part.sizes)));
    CHECK(got == walked(tensor, part));
    CHECK(source.calls == 1);
    CHECK(source.asked.size() == (cost < gap ? 100U : 1U));
    CHECK(source.bytes_read() == (cost < gap ? rows * run : (rows - 1) * columns * 4 + run));
  }
}

TEST_CASE("rows without gaps are one range, whatever the strides of the destination") {
  const stored_tensor tensor = contiguous_stored_tensor(dtype::int32, {50, 1000}, 0, 50 * 1000 * 4);
  const std::vector<std::pair<std::int64_t, std::int64_t>> one_range{{0, 50 * 1000 * 4}};
  for (const std::int64_t width : {1000, 1200}) {
    const far_source source(50 * 1000, 1);
    std::vector<std::int32_t> got(static_cast<std::size_t>(50 * width), -1);
    const tensor_view to{reinterpret_cast<std::byte*>(got.data()), dtype::int32, {}, {50, 1000}, {width, 1}};
    REQUIRE(read_box(source, tensor, box::whole({50, 1000}), to));
    bool is_equal = true;
    for (std::int64_t row = 0; row < 50; ++row)
      for (std::int64_t column = 0; column < width; ++column)
        is_equal &= got[static_cast<std::size_t>(row * width + column)] == (column < 1000 ? row * 1000 + column : -1);
    CHECK(is_equal);
    CHECK(source.asked == one_range);
  }
}

TEST_CASE("a box beyond the staging memory is read in several calls, each within it") {
  constexpr std::int64_t rows = 64, columns = 1 << 18, kept = columns - 1;  // 64 MiB
  const stored_tensor tensor = contiguous_stored_tensor(dtype::int32, {rows, columns}, 0, rows * columns * 4);
  const far_source source(rows * columns, 4096);
  const box part{{0, 0}, {rows, kept}};
  std::vector<std::int32_t> got(static_cast<std::size_t>(part.volume()));
  // Columns first: no run is contiguous on both sides.
  const tensor_view to{reinterpret_cast<std::byte*>(got.data()), dtype::int32, {}, {rows, kept}, {1, rows}};
  REQUIRE(read_box(source, tensor, part, to));
  bool is_equal = true;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < kept; ++column)
      is_equal &= got[static_cast<std::size_t>(column * rows + row)] == row * columns + column;
  CHECK(is_equal);
  CHECK(source.calls >= 4);
  for (const auto& [offset, length] : source.asked) CHECK(length <= std::int64_t{16} << 20);
}
