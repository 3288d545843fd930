// SPDX-License-Identifier: Apache-2.0
// Compares reads of boxes of stored tensors with a walk over every element.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <random>
#include <random_seed.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

import shardmesh.checkpoint_core;

using namespace shardmesh;

namespace {

// Counts the bytes that are read.
class counting_source final : public byte_source {
 public:
  explicit counting_source(std::vector<std::byte> bytes) : bytes_(std::move(bytes)), memory_(bytes_, "memory") {}
  std::int64_t size_bytes() const override { return memory_.size_bytes(); }
  std::string name() const override { return "memory"; }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const override {
    bytes_read += static_cast<std::int64_t>(out.size());
    return memory_.read(offset, out);
  }
  std::span<const std::byte> bytes() const { return bytes_; }
  mutable std::int64_t bytes_read = 0;

 private:
  std::vector<std::byte> bytes_;
  memory_source memory_;
};

// A source with a file of its own. Counts the bytes that are read, but not those that are mapped.
class stored_file final : public byte_source {
 public:
  explicit stored_file(std::vector<std::byte> bytes) : memory_(std::move(bytes)) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(memory_.bytes().data()),
               static_cast<std::streamsize>(memory_.size_bytes()));
  }
  ~stored_file() override { std::filesystem::remove(path); }
  std::int64_t size_bytes() const override { return memory_.size_bytes(); }
  std::string name() const override { return path.string(); }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const override {
    bytes_read += static_cast<std::int64_t>(out.size());
    return memory_.read(offset, out);
  }
  std::optional<file_range> plain_file() const override { return file_range{path.string(), 0, size_bytes()}; }

  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("shardmesh-stored-" + std::to_string(std::random_device{}()));
  mutable std::int64_t bytes_read = 0;

 private:
  counting_source memory_;
};

std::vector<std::byte> numbers(std::int64_t count, std::size_t before = 0) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  std::vector<std::byte> bytes(before + values.size() * 4);
  if (!values.empty()) std::memcpy(bytes.data() + before, values.data(), values.size() * 4);
  return bytes;
}

}  // namespace

TEST_CASE("any box of any strided tensor is read element by element right") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 500; ++round) {
    const std::size_t rank = random() % 4;
    stored_tensor tensor;
    tensor.type = dtype::int32;
    std::vector<std::size_t> order(rank);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    tensor.sizes = tensor.strides = extents::filled(rank, 0);
    for (std::size_t d = 0; d < rank; ++d) tensor.sizes[d] = 1 + static_cast<std::int64_t>(random() % 9);
    std::int64_t step = 1;
    for (const std::size_t d : order) {  // permuted strides, sometimes with gaps, sometimes expanded
      const bool expanded = random() % 8 == 0;
      tensor.strides[d] = expanded ? 0 : step;
      if (!expanded) step = step * tensor.sizes[d] + static_cast<std::int64_t>(random() % 2);
    }
    tensor.storage_offset = static_cast<std::int64_t>(random() % 5);
    tensor.begin = static_cast<std::int64_t>(random() % 3) * 4;
    const std::int64_t span = tensor.storage_offset + step + 8;
    tensor.size_bytes = span * 4;
    const counting_source source(numbers(span, static_cast<std::size_t>(tensor.begin)));
    box part{extents::filled(rank, 0), extents::filled(rank, 0)};
    for (std::size_t d = 0; d < rank; ++d) {
      part.offsets[d] = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(tensor.sizes[d]));
      part.sizes[d] =
          static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(tensor.sizes[d] - part.offsets[d] + 1));
    }
    std::vector<std::int32_t> got(static_cast<std::size_t>(part.volume()), -1), wanted;
    const tensor_view to{
        reinterpret_cast<std::byte*>(got.data()), dtype::int32, {}, part.sizes, contiguous_strides(part.sizes)};
    const read_options options{static_cast<std::int64_t>(4 + random() % 200), static_cast<std::int64_t>(random() % 40)};
    REQUIRE(read_box(source, tensor, part, to, options));
    const auto walk = [&](auto& self, std::size_t d, std::int64_t at) -> void {
      if (d == rank) return wanted.push_back(static_cast<std::int32_t>(at));
      for (std::int64_t i = 0; i < part.sizes[d]; ++i)
        self(self, d + 1, at + (part.offsets[d] + i) * tensor.strides[d]);
    };
    if (!part.is_empty()) walk(walk, 0, tensor.storage_offset);
    CHECK(got == wanted);
  }
}

TEST_CASE("columns with runs of 4 KiB or more cost at most 1.25 of the bytes that are needed") {
  const std::int64_t rows = 64, columns = 8192;
  const counting_source source(numbers(rows * columns));
  const stored_tensor tensor = contiguous_stored_tensor(dtype::int32, {rows, columns}, 0, rows * columns * 4);
  const box part{{0, 1024}, {rows, 1024}};
  std::vector<std::int32_t> got(static_cast<std::size_t>(part.volume()));
  const tensor_view to{
      reinterpret_cast<std::byte*>(got.data()), dtype::int32, {}, part.sizes, contiguous_strides(part.sizes)};
  REQUIRE(read_box(source, tensor, part, to));
  CHECK(source.bytes_read * 100 <= part.volume() * 4 * 125);
  CHECK(got[1025] == columns + 1024 + 1);
}

TEST_CASE("short runs are read through the range that covers them, and the cost says so") {
  const counting_source source(numbers(64 * 64));
  const stored_tensor tensor = contiguous_stored_tensor(dtype::int32, {64, 64}, 0, 64 * 64 * 4);
  const box part{{0, 0}, {64, 8}};
  CHECK(read_cost_bytes(tensor, part) > part.volume() * 4 * 5);
}

TEST_CASE("a box that leaves the stored tensor is refused with both boxes") {
  const counting_source source(numbers(4));
  const stored_tensor tensor = contiguous_stored_tensor(dtype::int32, {2, 2}, 0, 16);
  host_tensor to = host_tensor::make(dtype::int32, {2, 2}).value();
  const auto refused = read_box(source, tensor, {{1, 0}, {2, 2}}, adapter<host_tensor>::view(to));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::out_of_bounds);
  CHECK(to_string(refused.error()).find("[1:3, 0:2)") != std::string::npos);
}

TEST_CASE("columns are copied out of a mapped file where that is asked for, and nothing is read for them") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  const stored_file file(numbers(40 * 30, 7));
  const stored_tensor tensor = contiguous_stored_tensor(dtype::int32, {40, 30}, 7, 40 * 30 * 4);
  file_maps maps;
  for (int round = 0; round < 100; ++round) {
    const auto first = static_cast<std::int64_t>(random() % 20), row = static_cast<std::int64_t>(random() % 30);
    const box part{{row, first},
                   {2 + static_cast<std::int64_t>(random() % 9), 1 + static_cast<std::int64_t>(random() % 10)}};
    std::vector<std::int32_t> got(static_cast<std::size_t>(part.volume()), -1), wanted;
    for (std::int64_t i = 0; i < part.sizes[0]; ++i)
      for (std::int64_t j = 0; j < part.sizes[1]; ++j)
        wanted.push_back(static_cast<std::int32_t>((row + i) * 30 + first + j));
    const tensor_view to{
        reinterpret_cast<std::byte*>(got.data()), dtype::int32, {}, part.sizes, contiguous_strides(part.sizes)};
    REQUIRE(read_box(file, tensor, part, to, {.map_rows = true}, &maps));
    CHECK(got == wanted);
  }
  CHECK(file.bytes_read == 0);
}

TEST_CASE("a mapped file that became shorter is an error that names it, before and after it was mapped") {
  const stored_tensor tensor = contiguous_stored_tensor(dtype::int32, {40, 30}, 0, 40 * 30 * 4);
  const box part{{0, 3}, {40, 2}};
  host_tensor to = host_tensor::make(dtype::int32, {40, 2}).value();
  for (const bool is_mapped_before : {false, true}) {
    const stored_file file(numbers(40 * 30));
    file_maps maps;
    if (is_mapped_before) REQUIRE(read_box(file, tensor, part, view_of(to), {.map_rows = true}, &maps));
    std::filesystem::resize_file(file.path, 100);
    const auto refused = read_box(file, tensor, part, view_of(to), {.map_rows = true}, &maps);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::io);
    CHECK(to_string(refused.error()).find(file.path.string() + ": became shorter after it was ") != std::string::npos);
  }
}

TEST_CASE("bytes that do not lie in a file as they are, or in the other byte order, are read as ever") {
  const box part{{0, 3}, {40, 2}};
  file_maps maps;
  host_tensor plain = host_tensor::make(dtype::int32, {40, 2}).value();
  host_tensor mapped = host_tensor::make(dtype::int32, {40, 2}).value();
  const counting_source memory(numbers(40 * 30));
  stored_tensor tensor = contiguous_stored_tensor(dtype::int32, {40, 30}, 0, 40 * 30 * 4);
  REQUIRE(read_box(memory, tensor, part, view_of(mapped), {.map_rows = true}, &maps));
  CHECK(memory.bytes_read > 0);
  const stored_file file(numbers(40 * 30));
  tensor.swap_bytes = true;
  REQUIRE(read_box(file, tensor, part, view_of(plain)));
  REQUIRE(read_box(file, tensor, part, view_of(mapped), {.map_rows = true}, &maps));
  CHECK(std::ranges::equal(plain.bytes(), mapped.bytes()));
}
