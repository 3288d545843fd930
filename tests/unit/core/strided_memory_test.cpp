// SPDX-License-Identifier: Apache-2.0
// Compares strided_memory with sets of bytes: random and interleaved views of one block, and negative strides.
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <random_seed.hpp>
#include <set>
#include <strided_memory.hpp>
#include <vector>

import shardmesh.core;

using namespace shardmesh;

namespace {

std::array<std::byte, 4096> memory;

std::set<std::ptrdiff_t> bytes_of(const const_tensor_view& view, std::int64_t item) {
  std::set<std::ptrdiff_t> reached{view.data - memory.data()};
  for (std::size_t d = 0; d < view.sizes.rank(); ++d) {
    std::set<std::ptrdiff_t> more;
    for (const std::ptrdiff_t at : reached)
      for (std::int64_t i = 0; i < view.sizes[d]; ++i) more.insert(at + i * view.strides[d] * item);
    reached = more;
  }
  std::set<std::ptrdiff_t> all;
  for (const std::ptrdiff_t at : reached)
    for (std::int64_t byte = 0; byte < item; ++byte) all.insert(at + byte);
  return all;
}

bool meet(const std::set<std::ptrdiff_t>& a, const std::set<std::ptrdiff_t>& b) {
  return std::any_of(a.begin(), a.end(), [&](std::ptrdiff_t at) { return b.contains(at); });
}

const_tensor_view any_view(std::mt19937_64& random, std::int64_t& item) {
  const auto below = [&](std::int64_t end) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end));
  };
  constexpr std::array strides{-12, -5, -3, -1, 1, 2, 3, 4, 5, 8, 12};
  constexpr std::array<std::int64_t, 4> items{1, 2, 4, 8};
  item = items[static_cast<std::size_t>(below(4))];
  const auto rank = static_cast<std::size_t>(below(4));
  const_tensor_view view{
      memory.data() + 2048 + below(300), dtype::uint8, {}, extents::filled(rank, 1), extents::filled(rank, 1)};
  for (std::size_t d = 0; d < rank; ++d) {
    view.sizes[d] = below(5);
    view.strides[d] = strides[static_cast<std::size_t>(below(strides.size()))];
  }
  return view;
}

const_tensor_view view_at(std::int64_t offset, const extents& sizes, const extents& strides) {
  return {memory.data() + offset, dtype::uint8, {}, sizes, strides};
}

std::optional<bool> shared(const const_tensor_view& a, const const_tensor_view& b) {
  return detail::share_a_byte(detail::memory_of(a, 8), detail::memory_of(b, 8));
}

}  // namespace

TEST_CASE("two random views share a byte when their sets of bytes meet", "[strided_memory]") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  const auto runs = static_cast<int>(random_seed::rounds(5000));
  int sharing = 0;
  for (int run = 0; run < runs; ++run) {
    std::int64_t item_a = 0, item_b = 0;
    const const_tensor_view a = any_view(random, item_a), b = any_view(random, item_b);
    const bool expected = meet(bytes_of(a, item_a), bytes_of(b, item_b));
    INFO("run " << run << ": " << to_string(a.sizes) << to_string(a.strides) << " of " << item_a << " bytes at "
                << a.data - memory.data() << ", " << to_string(b.sizes) << to_string(b.strides) << " of " << item_b
                << " at " << b.data - memory.data());
    REQUIRE(detail::share_a_byte(detail::memory_of(a, 8 * item_a), detail::memory_of(b, 8 * item_b)) == expected);
    sharing += expected;
  }
  CHECK(sharing > runs / 50);
  CHECK(sharing < runs - runs / 50);
}

TEST_CASE("large interleaved views are told apart without listing their runs", "[strided_memory]") {
  // The even and the odd columns of ten million rows that do not exist: nothing reads the memory.
  constexpr std::int64_t rows = 10'000'000;
  const const_tensor_view even = view_at(0, {rows, 4}, {8, 2}), odd = view_at(1, {rows, 4}, {8, 2});
  CHECK(shared(even, odd) == false);
  CHECK(shared(even, view_at(8 * (rows - 1) + 6, {1}, {1})) == true);
  CHECK(shared(even, view_at(8 * (rows - 1) + 7, {1}, {1})) == false);
  CHECK(shared(view_at(0, {rows, 4}, {8, 1}), view_at(4, {rows, 4}, {8, 1})) == false);
  CHECK(shared(view_at(0, {rows, 5}, {8, 1}), view_at(4, {rows, 4}, {8, 1})) == true);
}

TEST_CASE("a view without elements, or that reaches further than addresses do, shares nothing", "[strided_memory]") {
  const const_tensor_view all = view_at(0, {4096}, {1});
  CHECK(shared(all, view_at(5, {0, 3}, {3, 1})) == false);
  CHECK(shared(all, view_at(5, {}, {})) == true);
  CHECK(shared(all, view_at(5, {3, 3}, {INT64_MAX / 2, 1})) == false);
  CHECK(shared(all, view_at(5, {3}, {INT64_MIN})) == false);
}

TEST_CASE("elements smaller than a byte share the byte that both lie in", "[strided_memory]") {
  const auto nibbles = [](std::int64_t byte, std::int64_t count) {
    return detail::memory_of(view_at(byte, {count}, {1}), 4);
  };
  CHECK(detail::share_a_byte(nibbles(0, 6), nibbles(2, 2)) == true);
  CHECK(detail::share_a_byte(nibbles(0, 5), nibbles(2, 2)) == true);
  CHECK(detail::share_a_byte(nibbles(0, 4), nibbles(2, 2)) == false);
}
