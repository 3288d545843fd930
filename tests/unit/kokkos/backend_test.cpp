// SPDX-License-Identifier: Apache-2.0
// Compares random batches on Kokkos with the reference, also from several threads, and tests refusals.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <memory>
#include <random_seed.hpp>
#include <string>
#include <thread>
#include <vector>

import shardmesh.kokkos;
import shardmesh.test.backend_property;

using namespace shardmesh;

TEST_CASE("Kokkos runs random batches as the reference does") {
  auto backend = kokkos_backend().value();
  for (const std::uint64_t seed : random_seed::seeds(20, 5)) {
    INFO(backend->name() << ", seed " << seed);
    REQUIRE(backend_property::difference(*backend, {}, seed) == "");
  }
  for (const std::uint64_t seed : random_seed::seeds(1, 3)) {
    INFO(backend->name() << ", large, seed " << seed);
    REQUIRE(backend_property::difference_when_large(*backend, {}, seed) == "");
  }
}

TEST_CASE("Kokkos casts to and from 8-bit floats as the reference does") {
  CHECK(backend_property::difference_in_float8_casts(*kokkos_backend().value(), {}) == "");
}

TEST_CASE("several threads run batches on Kokkos at the same time") {
  auto backend = kokkos_backend().value();
  std::vector<std::string> problems(4);
  std::vector<std::thread> ranks;
  for (std::uint64_t r = 0; r < problems.size(); ++r)
    ranks.emplace_back([&, r] {
      const std::uint64_t first = 1000 * (r + 1);
      for (std::uint64_t seed = first; problems[r].empty() && seed < first + random_seed::rounds(3); ++seed)
        problems[r] = seed % 4 == 0 ? backend_property::difference_when_large(*backend, {}, seed)
                                    : backend_property::difference(*backend, {}, seed);
    });
  for (std::thread& rank : ranks) rank.join();
  CHECK(problems == std::vector<std::string>(4));
}

TEST_CASE("an item that Kokkos has no kernel for is refused with its dtypes") {
  CHECK(backend_property::wrong_refusals(*kokkos_backend().value(), {}) == "");
}
