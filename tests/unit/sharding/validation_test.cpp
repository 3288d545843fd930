// SPDX-License-Identifier: Apache-2.0
// Tests the checks of shards: their texts, odd input, sizes near 2^63, and thousands of random layouts against an array
// of cells.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "random_shards.hpp"
#include "shard_cells.hpp"
import shardmesh.sharding;
import shardmesh.test.shards;

using namespace shardmesh;

namespace {

constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

using shards::at;

std::vector<std::string> texts(const std::vector<shard_metadata>& shards, const extents& size, std::size_t most = 100) {
  const auto report = check_shards(shards, size, most);
  std::vector<std::string> all;
  for (const cover_problem& p : report.problems) all.push_back(describe(p, shards));
  return all;
}

using lines = std::vector<std::string>;

}  // namespace

TEST_CASE("problems are described with ranks and boxes, and by position where shards have no rank") {
  CHECK(texts({at(0, {0, 0}, {2, 8}), at(2, {2, 0}, {4, 8}), at(5, {4, 0}, {2, 8})}, {7, 8}) ==
        lines{"ranks 2 and 5 overlap in [4:6, 0:8)", "[6:7, 0:8) is held by no rank"});
  CHECK(texts({at(3, {0}, {3}), at(3, {2}, {2})}, {4}) == lines{"two shards of rank 3 overlap in [2:3)"});
  const shard_metadata nowhere{{0}, {3}, std::nullopt};
  CHECK(texts({nowhere, at(3, {2}, {2})}, {4}) == lines{"shard 0 and rank 3 overlap in [2:3)"});
  CHECK(texts({nowhere, nowhere}, {3}) == lines{"shards 0 and 1 overlap in [0:3)"});
  CHECK(texts({at(7, {0}, {5})}, {4}) == lines{"rank 7 extends beyond the tensor with [0:5)"});
  CHECK(texts({nowhere, {{3}, {-1}, std::nullopt}}, {3}) ==
        lines{"shard 1 has a shard with offsets [3] and sizes [-1]"});
}

TEST_CASE("shards of another number of dimensions are problems of their own") {
  const std::vector<shard_metadata> shards{at(0, {0, 0}, {2, 2}), at(1, {2}, {2}), at(2, {2, 0}, {2, 2})};
  CHECK(texts(shards, {4, 2}) == lines{"rank 1 extends beyond the tensor with [2:4)"});
  const auto found = check_tensor(shards, {4, 2});
  REQUIRE(!found);
  CHECK(found.error().code == errc::shape_mismatch);
  CHECK(to_string(found.error()) ==
        "shard 1 does not have the tensor's number of dimensions in [2:4) (rank 1): expected 2, found 1");
  const shard_metadata torn{{0, 0}, {2}, remote_device{4, "", {}}};
  CHECK(
      to_string(check_tensor(std::vector{torn}, {2}).error()) ==
      "shard 0 with offsets [0, 0] and sizes [2] does not have the tensor's number of dimensions (rank 4): expected 1, "
      "found 2 offsets, 1 size; and 1 more problem");
  CHECK(!validate_non_overlapping_shards_metadata(shards));
  // Only a scalar's shard covers a scalar.
  CHECK(!check_tensor(std::vector{at(0, {0}, {1})}, {}));
  CHECK(texts({at(0, {0}, {1})}, {}).size() == 2);
}

TEST_CASE("the error names the first problem and counts the others") {
  const auto found = check_tensor(std::vector{at(0, {0}, {4}), at(1, {2}, {4}), at(2, {9}, {1})}, {10});
  REQUIRE(!found);
  CHECK(found.error().code == errc::overlap);
  CHECK(to_string(found.error()) ==
        "shards 0 at [0:4) and 1 at [2:6) overlap in [2:4) (ranks 0, 1); and 1 more problem");
  const auto gap = check_tensor(std::vector{at(0, {0}, {4})}, {10});
  CHECK(to_string(gap.error()) == "cells are held by no rank in [4:10)");
  const auto outside = check_tensor(std::vector{at(8, {0}, {4})}, {3});
  CHECK(to_string(outside.error()) ==
        "shard 0 extends beyond the tensor in [0:4) (rank 8): expected within [0:3), found [0:4)");
}

TEST_CASE("equal boxes on two ranks overlap, empty shards and scalars are ordinary") {
  CHECK(!check_tensor(std::vector{at(0, {0}, {4}), at(1, {0}, {4})}, {4}));
  CHECK(!validate_non_overlapping_shards_metadata(std::vector{at(0, {0}, {4}), at(1, {0}, {4})}));
  CHECK(check_tensor(std::vector{at(0, {0, 0}, {4, 2}), at(1, {1, 0}, {0, 2}), at(2, {1, 0}, {0, 2})}, {4, 2}));
  CHECK(check_tensor(std::vector{at(0, {0, 0}, {0, 2}), at(1, {0, 0}, {0, 2})}, {0, 2}));
  CHECK(check_tensor(std::vector{at(0, {}, {}), at(1, {}, {})}, {}));
  CHECK(validate_non_overlapping_shards_metadata(std::vector{at(0, {}, {}), at(1, {}, {})}));
  CHECK(check_tensor({}, {0, 3}));
  CHECK(validate_non_overlapping_shards_metadata({}));
  CHECK(!check_tensor({}, {}));
  CHECK(!check_tensor({}, {3}));
  // PyTorch refuses this as well: an empty shard must lie within the tensor.
  CHECK(check_tensor(std::vector{at(0, {0}, {4}), at(1, {5}, {0})}, {4}).error().code == errc::out_of_bounds);
}

TEST_CASE("numbers near 2^63 are compared, not wrapped") {
  CHECK(check_tensor(std::vector{at(0, {0}, {huge - 1}), at(1, {huge - 1}, {1})}, {huge}));
  CHECK(check_tensor(std::vector{at(0, {0}, {huge}), at(1, {huge}, {1})}, {huge}).error().code == errc::out_of_bounds);
  CHECK(check_tensor(std::vector{at(0, {0}, {huge}), at(1, {1}, {huge})}, {huge}).error().code == errc::out_of_bounds);
  const auto wrapped = validate_non_overlapping_shards_metadata(std::vector{at(0, {0}, {1}), at(1, {2}, {huge})});
  REQUIRE(!wrapped);
  CHECK(to_string(wrapped.error()) == "shard 1 is not a box: offsets [2] and sizes [9223372036854775807] (rank 1)");
  CHECK(!validate_non_overlapping_shards_metadata(std::vector{at(0, {0, 0}, {huge, huge}), at(1, {5, 5}, {1, 1})}));
  CHECK(check_tensor({}, {huge, 2}).error().code == errc::overflow);
  CHECK(check_tensor({}, {-1}).error().code == errc::invalid_argument);
}

TEST_CASE("random layouts are judged as an array of cells judges them") {
  const auto seed = random_shards::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  std::size_t wrong = 0;
  for (int run = 0; run < random_shards::runs(4000); ++run) {
    auto drawn = random_shards::draw(random);
    if (random() % 3 != 0) random_shards::damage(random, drawn);
    const extents size(drawn.size);
    std::vector<shard_metadata> shards;
    for (std::size_t i = 0; i < drawn.shards.size(); ++i)
      shards.push_back(at(drawn.owners[i], extents(drawn.shards[i].offsets), extents(drawn.shards[i].sizes)));
    INFO("run " << run << " size " << to_string(size));
    for (const shard_metadata& s : shards) UNSCOPED_INFO(to_string(s));
    const auto truth = shard_cells::look(drawn.size, drawn.shards);
    const auto report = check_shards(shards, size, 10'000);
    REQUIRE(report.ok() == truth.ok());
    REQUIRE(check_tensor(shards, size).has_value() == truth.ok());
    const bool one_rank = std::all_of(drawn.shards.begin(), drawn.shards.end(), [&](const auto& s) {
      return shard_cells::has_rank(s, drawn.shards.front().sizes.size());
    });
    REQUIRE(validate_non_overlapping_shards_metadata(shards).has_value() ==
            (one_rank && shard_cells::overlapping_pairs(drawn.shards) == 0));
    wrong += truth.ok() ? 0 : 1;
    // The report names all wrong cells, and no others.
    std::vector<int> named(static_cast<std::size_t>(box::whole(size).volume()), 0), held = named;
    std::size_t outside = 0;
    for (const auto& s : drawn.shards)
      if (shard_cells::has_rank(s, size.rank()))
        shard_cells::for_each_cell(drawn.size, s, [&](std::int64_t cell) { ++held[static_cast<std::size_t>(cell)]; });
    for (const cover_problem& p : report.problems) {
      outside += p.kind == cover_kind::out_of_bounds ? 1 : 0;
      if (p.kind == cover_kind::out_of_bounds) continue;
      const shard_cells::shard where{{p.where.offsets.begin(), p.where.offsets.end()},
                                     {p.where.sizes.begin(), p.where.sizes.end()}};
      shard_cells::for_each_cell(drawn.size, where, [&](std::int64_t cell) {
        ++named[static_cast<std::size_t>(cell)];
        REQUIRE((p.kind == cover_kind::gap ? held[static_cast<std::size_t>(cell)] == 0
                                           : held[static_cast<std::size_t>(cell)] > 1));
      });
    }
    REQUIRE(outside == truth.outside + truth.odd);
    if (!size.empty())
      for (std::size_t cell = 0; cell < held.size(); ++cell) REQUIRE((held[cell] != 1) == (named[cell] > 0));
  }
  CHECK(wrong > 500);
}
