// SPDX-License-Identifier: Apache-2.0
// Compares position_table with a linear search: colliding hashes, growth, and positions that move.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <position_table.hpp>
#include <random>
#include <random_seed.hpp>
#include <vector>

using shardmesh::detail::position_table;

namespace {

// Few hashes, with and without common tags (the upper bits) and slots (the lower bits).
std::uint64_t hash_of(std::uint64_t value) {
  return value % 3 << 62 | value % 5 << 48 | value % 7;
}

std::size_t found_in(const position_table& table, const std::vector<std::uint64_t>& values, std::uint64_t sought) {
  return table.find(hash_of(sought), [&](std::size_t at) { return values[at] == sought; });
}

}  // namespace

TEST_CASE("positions are found by value whatever the hashes are") {
  for (const std::uint64_t seed : random_seed::seeds(50)) {
    INFO("SHARDMESH_SEED=" << seed);
    std::mt19937_64 random(seed);
    std::vector<std::uint64_t> values;
    position_table table(random() % 20);
    for (std::size_t count = random() % 300; values.size() < count;) {
      const std::uint64_t value = random() % 1000;
      if (std::find(values.begin(), values.end(), value) != values.end()) continue;
      values.push_back(value);
      table.insert(hash_of(value), values.size() - 1, [&](std::size_t at) { return hash_of(values[at]); });
    }
    for (std::uint64_t value = 0; value < 1000; ++value) {
      const auto there = std::find(values.begin(), values.end(), value);
      const std::size_t expected =
          there == values.end() ? position_table::none : static_cast<std::size_t>(there - values.begin());
      REQUIRE(found_in(table, values, value) == expected);
    }
  }
}

TEST_CASE("values that move to the back are found at their new positions") {
  std::vector<std::uint64_t> values{10, 20, 30, 40};
  position_table table;
  for (std::size_t at = 0; at < values.size(); ++at)
    table.insert(hash_of(values[at]), at, [&](std::size_t other) { return hash_of(values[other]); });
  // Makes room for two values in the middle. The last value moves first, so that no two share a position.
  table.move(hash_of(40), 3, 5);
  table.move(hash_of(30), 2, 4);
  values = {10, 20, 21, 22, 30, 40};
  for (const std::size_t at : {std::size_t{2}, std::size_t{3}})
    table.insert(hash_of(values[at]), at, [&](std::size_t other) { return hash_of(values[other]); });
  for (std::size_t at = 0; at < values.size(); ++at) CHECK(found_in(table, values, values[at]) == at);
  CHECK(found_in(table, values, 50) == position_table::none);
}

TEST_CASE("an empty table finds nothing") {
  CHECK(position_table().find(0, [](std::size_t) { return true; }) == position_table::none);
}
