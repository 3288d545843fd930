// SPDX-License-Identifier: Apache-2.0
// Tests counts with their nouns, and shortened lists of ranks.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <numeric>
#include <plural.hpp>
#include <string>
#include <vector>

using shardmesh::detail::counted;
using shardmesh::detail::rank_list;
using shardmesh::detail::ranks_text;

TEST_CASE("one thing has no plural, none and several have") {
  CHECK(counted(0, "tensor") == "0 tensors");
  CHECK(counted(1, "tensor") == "1 tensor");
  CHECK(counted(std::uint64_t{12}, "tensor") == "12 tensors");
  CHECK(counted(1, "entry", "entries") == "1 entry");
  CHECK(counted(2, "entry", "entries") == "2 entries");
  CHECK(counted(std::int8_t{-1}, "tensor") == "-1 tensors");
}

TEST_CASE("sixteen ranks are named, and the others counted") {
  std::vector<std::int32_t> ranks;
  CHECK(rank_list(ranks) == "");
  ranks = {3};
  CHECK(ranks_text(ranks) == "rank 3");
  ranks = {0, 1, 7};
  CHECK(ranks_text(ranks) == "ranks 0, 1, 7");
  ranks.resize(16);
  std::iota(ranks.begin(), ranks.end(), 0);
  CHECK(rank_list(ranks) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15");
  ranks.push_back(16);
  CHECK(ranks_text(ranks) == "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 1 more");
}
