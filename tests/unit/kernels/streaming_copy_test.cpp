// SPDX-License-Identifier: Apache-2.0
// Tests copies that are large enough to bypass the cache. Every byte arrives and no other byte is touched, whatever the
// alignment of the rows and the length of their ends.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "random_seed.hpp"
import shardmesh.kernels;

using namespace shardmesh;

TEST_CASE("large copies of parts of matrices move every byte and no other") {
  for (const std::uint64_t seed : random_seed::seeds(40)) {
    std::mt19937_64 random(seed);
    // Near the smallest run and the smallest size that bypass the cache, in rows of a matrix or of a stack of matrices.
    const auto run = static_cast<std::int64_t>(400 + random() % 4000);
    const auto rows = (512 << 10) / run + static_cast<std::int64_t>(random() % 9) - 2;
    const std::int64_t depth = 1 + static_cast<std::int64_t>(random() % 2);
    const auto gap = [&] { return static_cast<std::int64_t>(random() % 3 == 0 ? 0 : random() % 200); };
    const std::int64_t to_row = run + gap(), from_row = run + gap();
    const std::int64_t to_plane = rows * to_row + gap(), from_plane = rows * from_row + gap();
    const std::size_t to_at = random() % 64, from_at = random() % 64;
    std::vector<std::uint8_t> from(from_at + static_cast<std::size_t>(depth * from_plane)),
        to(to_at + static_cast<std::size_t>(depth * to_plane) + 64, std::uint8_t{0xa5});
    for (auto& byte : from) byte = static_cast<std::uint8_t>(random());
    std::vector<std::uint8_t> expected = to;
    for (std::int64_t d = 0; d < depth; ++d)
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t i = 0; i < run; ++i)
          expected[to_at + static_cast<std::size_t>(d * to_plane + r * to_row + i)] =
              from[from_at + static_cast<std::size_t>(d * from_plane + r * from_row + i)];
    const extents sizes{depth, rows, run};
    const tensor_view target{
        reinterpret_cast<std::byte*>(to.data() + to_at), dtype::uint8, {}, sizes, {to_plane, to_row, 1}};
    const tensor_view source{
        reinterpret_cast<std::byte*>(from.data() + from_at), dtype::uint8, {}, sizes, {from_plane, from_row, 1}};
    CAPTURE(seed, run, rows, depth, to_row, from_row, to_at);
    REQUIRE(copy(target, source).has_value());
    REQUIRE(to == expected);
  }
}
