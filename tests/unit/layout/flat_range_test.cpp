// SPDX-License-Identifier: Apache-2.0
// Compares ranges of a dense tensor, as boxes, with the list of its elements in memory order.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <indices.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "random_seed.hpp"
import shardmesh.layout;

using namespace shardmesh;

namespace {

struct dense {
  extents sizes, strides;
};

// A random shape, stored densely with its dimensions in random order.
dense random_dense(std::mt19937_64& random, std::size_t rank) {
  constexpr std::int64_t few[] = {0, 1, 1, 2, 3, 5, 7};
  dense made{extents::filled(rank, 0), extents::filled(rank, 0)};
  for (auto& size : made.sizes) size = few[std::uniform_int_distribution<std::size_t>(random() % 8 ? 1 : 0, 6)(random)];
  std::vector<std::size_t> order(rank);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  std::int64_t step = 1;
  for (std::size_t i = rank; i-- > 0;) {
    made.strides[order[i]] = made.sizes[order[i]] == 1 && random() % 2 ? 100 : step;  // the stride does not matter then
    step *= made.sizes[order[i]];
  }
  return made;
}

std::int64_t memory_offset(const extents& index, const extents& strides) {
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < index.rank(); ++d) offset += index[d] == 0 ? 0 : index[d] * strides[d];
  return offset;
}

}  // namespace

TEST_CASE("the memory order of a dense tensor is found from its strides") {
  CHECK(memory_order({3, 2, 3, 2}, {12, 6, 2, 1}) == extents{0, 1, 2, 3});
  CHECK(memory_order({3, 2, 3, 2}, {12, 1, 4, 2}) == extents{0, 2, 3, 1});
  CHECK(memory_order({4, 5}, {1, 4}) == extents{1, 0});
  CHECK(memory_order({}, {}) == extents{});
  CHECK(memory_order({3, 1, 4}, {4, 77, 1}) == extents{0, 1, 2});
  CHECK(memory_order({0, 3}, {9, 9}) == extents{0, 1});
}

TEST_CASE("strides with gaps, overlap or a negative direction have no memory order") {
  CHECK_FALSE(memory_order({4, 5}, {6, 1}));
  CHECK_FALSE(memory_order({4, 5}, {5, 2}));
  CHECK_FALSE(memory_order({4, 5}, {0, 1}));
  CHECK_FALSE(memory_order({4}, {-1}));
  CHECK_FALSE(memory_order({2, 2}, {1, 1}));
  CHECK_FALSE(memory_order({2, 2}, {2}));
}

TEST_CASE("any range of a dense tensor is at most 2 * rank - 1 boxes that are contiguous in memory") {
  for (const std::uint64_t seed : random_seed::seeds(3000)) {
    INFO("SHARDMESH_SEED=" << seed);
    std::mt19937_64 random(seed);
    const std::size_t rank = random() % 5;
    const dense tensor = random_dense(random, rank);
    const auto order = memory_order(tensor.sizes, tensor.strides);
    REQUIRE(order);
    const std::int64_t numel = box::whole(tensor.sizes).volume();
    const std::int64_t begin = std::uniform_int_distribution<std::int64_t>(0, numel)(random);
    const std::int64_t size = std::uniform_int_distribution<std::int64_t>(0, numel - begin)(random);
    const auto boxes = boxes_of_range(tensor.sizes, *order, {begin, size});
    CHECK(boxes.size() <= (rank == 0 ? 1 : 2 * rank - 1));
    std::int64_t at = begin;
    for (const flat_box& b : boxes) {
      REQUIRE(b.begin == at);
      REQUIRE(lies_within(b.where, box::whole(tensor.sizes)));
      std::vector<std::int64_t> found;
      indices::for_each_in(b.where,
                           [&](const extents& index) { found.push_back(memory_offset(index, tensor.strides)); });
      std::sort(found.begin(), found.end());
      // Strides of dimensions of size 1 do not count, because their index is 0.
      for (const std::int64_t offset : found) REQUIRE(offset == at++);
    }
    REQUIRE(at == begin + size);
  }
}
