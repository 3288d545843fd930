// SPDX-License-Identifier: Apache-2.0
// Compares Kokkos with the host's backend on batches that are large enough to be written past the cache. The reference
// would take minutes for them; kernels/backend_test.cpp compares the host's backend with it.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

import shardmesh.kokkos;

using namespace shardmesh;

namespace {

struct piece {
  placed_view to, from;
};

// Memory of the host's backend, which is aligned to cache lines like that of frameworks.
class memory {
 public:
  explicit memory(std::int64_t size_bytes) : buffer_(host_backend()->allocate(size_bytes, {}, {}).value()) {}
  std::byte* data() const { return buffer_.data(); }
  std::int64_t size() const { return buffer_.size_bytes(); }

 private:
  device_buffer buffer_;
};

// At least `count` random words, which all comparisons of a test share. They are floats of one exponent in every format
// of two or more bytes, so that no converted value is NaN.
const std::vector<std::uint64_t>& random_words(std::size_t count) {
  static std::mt19937_64 random(5);
  static std::vector<std::uint64_t> words;
  words.reserve(count);
  while (words.size() < count) words.push_back((random() & 0x80FF80FF80FF80FFu) | 0x3F003F003F003F00u);
  return words;
}

std::string difference(const std::vector<piece>& pieces, std::int64_t to_bytes, std::int64_t from_bytes) {
  const memory from(from_bytes), got(to_bytes), expected(to_bytes);
  const auto words = static_cast<std::size_t>(from_bytes / 8);
  std::memcpy(from.data(), random_words(words).data(), 8 * words);
  batch_builder work;
  for (const piece& p : pieces) work.copy(p.to, p.from).value();
  const auto run = [&](kernel_backend& backend, const memory& to) {
    std::memset(to.data(), 0x5A, static_cast<std::size_t>(to.size()));
    const auto batch = backend.prepare(work.items(), {}).value();
    std::byte* const targets[] = {to.data()};
    const std::byte* const sources[] = {from.data()};
    backend.run(*batch, {targets, sources}, {}).value();
  };
  run(*kokkos_backend().value(), got);
  run(*host_backend(), expected);
  if (std::memcmp(got.data(), expected.data(), static_cast<std::size_t>(to_bytes)) == 0) return {};
  for (std::int64_t i = 0; i < to_bytes; ++i)
    if (got.data()[i] != expected.data()[i]) return "byte " + std::to_string(i);
  return {};
}

constexpr std::int64_t mib = 1 << 20;

}  // namespace

TEST_CASE("large runs arrive whole wherever they begin and end") {
  for (const std::int64_t to_at : {0, 1, 16, 63})
    for (const std::int64_t from_at : {0, 5, 32}) {
      CAPTURE(to_at, from_at);
      const std::int64_t bytes = 34 * mib + 77 * to_at + from_at;
      const std::vector<piece> pieces{
          {{0, to_at, dtype::uint8, {bytes}, {1}}, {0, from_at, dtype::uint8, {bytes}, {1}}}};
      REQUIRE(difference(pieces, bytes + 128, bytes + 128) == "");
    }
}

TEST_CASE("parts of large matrices arrive whole and alone") {
  for (const std::int64_t run : {20, 32, 48, 64, 80, 200, 256, 1024, 4096, 5000})
    for (const std::int64_t gap : {0, 16, 7}) {
      CAPTURE(run, gap);
      const std::int64_t rows = 34 * mib / run;
      const std::vector<piece> pieces{
          {{0, gap, dtype::uint8, {rows, run}, {run + gap, 1}}, {0, 0, dtype::uint8, {rows, run}, {run + 32, 1}}}};
      REQUIRE(difference(pieces, rows * (run + gap) + 64, rows * (run + 32) + 64) == "");
    }
}

TEST_CASE("large transposes turn every element, of any size") {
  for (const dtype type : {dtype::uint8, dtype::bfloat16, dtype::float32, dtype::float64, dtype::complex128})
    for (const std::int64_t offset : {0, 1}) {
      const std::int64_t item = item_bytes(type), rows = 4096 / item + 13 * offset, columns = 36 * mib / item / rows;
      CAPTURE(name(type), offset);
      const std::vector<piece> pieces{
          {{0, offset, type, {rows, columns}, {columns, 1}}, {0, 0, type, {rows, columns}, {1, rows}}}};
      REQUIRE(difference(pieces, 37 * mib, 37 * mib) == "");
    }
  // Cells of heads: [tokens, 8, 40 or 64 bytes] -> [8, tokens, ...].
  for (const std::int64_t cell : {40, 64}) {
    CAPTURE(cell);
    const std::int64_t tokens = 36 * mib / 8 / cell;
    const std::vector<piece> pieces{{{0, 0, dtype::uint8, {8, tokens, cell}, {tokens * cell, cell, 1}},
                                     {0, 0, dtype::uint8, {8, tokens, cell}, {cell, 8 * cell, 1}}}};
    REQUIRE(difference(pieces, 37 * mib, 37 * mib) == "");
  }
}

TEST_CASE("large casts convert every element, wherever they begin") {
  const auto cast = [](dtype to, dtype from, std::int64_t to_at) {
    CAPTURE(name(to), name(from), to_at);
    const std::int64_t count = 34 * mib / item_bytes(to) + 3;
    const std::vector<piece> pieces{{{0, to_at, to, {count}, {1}}, {0, 0, from, {count}, {1}}}};
    REQUIRE(difference(pieces, count * item_bytes(to) + 128, count * item_bytes(from) + 64) == "");
  };
  for (const std::int64_t to_at : {0, 1, 2, 62}) {
    cast(dtype::bfloat16, dtype::float32, to_at);
    cast(dtype::float32, dtype::bfloat16, to_at);
    cast(dtype::float16, dtype::float32, to_at);
    cast(dtype::float32, dtype::float16, to_at);
  }
}
