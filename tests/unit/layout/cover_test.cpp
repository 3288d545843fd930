// SPDX-License-Identifier: Apache-2.0
// Tests coverage case by case: overlaps, gaps, bounds, replicas, empty boxes, and scalars. cover_random_test.cpp
// compares it with a model.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <string>
#include <vector>
import shardmesh.layout;

using namespace shardmesh;

namespace {

fragment piece(owner_id owner, const extents& offsets, const extents& sizes) {
  fragment f;
  f.where = {offsets, sizes};
  f.owner = owner;
  f.local_offsets = extents::filled(sizes.rank(), 0);
  return f;
}

cover_report check(const extents& shape, const std::vector<fragment>& fragments, std::size_t most = 100) {
  return check_cover(distribution::from_fragments(shape, fragments, owner_space::ranks).value(), most);
}

std::vector<std::string> texts(const cover_report& report) {
  std::vector<std::string> all;
  for (const cover_problem& p : report.problems) all.push_back(to_string(p));
  return all;
}

}  // namespace

TEST_CASE("overlaps and gaps are named with ranks and boxes") {
  const auto report = check({7, 8}, {piece(0, {0, 0}, {2, 8}), piece(2, {2, 0}, {4, 8}), piece(5, {4, 0}, {2, 8})});
  CHECK(texts(report) ==
        std::vector<std::string>{"ranks 2 and 5 overlap in [4:6, 0:8)", "[6:7, 0:8) is held by no rank"});
  CHECK(report.total == 2);
}

TEST_CASE("replicas, empty boxes, scalars and tensors without cells are ordinary") {
  CHECK(check({4}, {piece(0, {0}, {2}), piece(1, {2}, {2}), piece(2, {0}, {2}), piece(3, {2}, {2})}).ok());
  CHECK(check({4}, {piece(0, {0}, {4}), piece(1, {2}, {0}), piece(2, {4}, {0})}).ok());
  CHECK(check({0, 4}, {piece(0, {0, 0}, {0, 4}), piece(1, {0, 0}, {0, 4})}).ok());
  CHECK(check({0, 4}, {}).ok());
  CHECK(check({4, 0}, {}).ok());
  CHECK(check({}, {piece(0, {}, {}), piece(1, {}, {})}).ok());
  CHECK(texts(check({}, {})) == std::vector<std::string>{"[) is held by no rank"});
  CHECK(texts(check({3}, {})) == std::vector<std::string>{"[0:3) is held by no rank"});
}

TEST_CASE("volumes that happen to add up do not hide an overlap") {
  const auto report = check({4}, {piece(0, {0}, {2}), piece(1, {1}, {2})});
  CHECK(texts(report) == std::vector<std::string>{"ranks 0 and 1 overlap in [1:2)", "[3:4) is held by no rank"});
}

TEST_CASE("the first problems are named and the rest counted") {
  std::vector<fragment> sparse;
  for (std::int64_t i = 0; i < 1000; ++i) sparse.push_back(piece(static_cast<owner_id>(i), {2 * i}, {1}));
  const auto report = check({2000}, sparse);
  CHECK(report.problems.size() == 100);
  CHECK(report.total == 1000);
  CHECK(to_string(report.problems[7]) == "[15:16) is held by no rank");
}

TEST_CASE("boxes that leave the tensor are refused with rank and box, and reported by check_boxes") {
  const auto refused = distribution::from_fragments({5}, std::vector{piece(3, {6}, {0})}, owner_space::ranks);
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::out_of_bounds);
  CHECK(refused.error().ranks == std::vector<std::int32_t>{3});
  CHECK(to_string(refused.error()).find("[6:6)") != std::string::npos);

  const std::vector<std::int64_t> offsets{0, 4, -1, INT64_MAX}, sizes{5, 2, 1, INT64_MAX};
  const std::vector<owner_id> owners{0, 1, 2, 3};
  const auto report = check_boxes({5}, offsets, sizes, owners);
  REQUIRE(report.total == 4);
  CHECK(to_string(report.problems[0]) == "rank 1 extends beyond the tensor with [4:6)");
  CHECK(to_string(report.problems[1]) == "rank 2 has a box with offsets [-1] and sizes [1]");
  CHECK(report.problems[2].first_index == 3);
  CHECK(to_string(report.problems[3]) == "ranks 0 and 1 overlap in [4:5)");
}

namespace {

using list = std::vector<std::int64_t>;

std::vector<owner_id> owners(std::size_t count) {
  std::vector<owner_id> made;
  for (std::size_t i = 0; i < count; ++i) made.push_back(static_cast<owner_id>(i));
  return made;
}

std::vector<std::string> overlaps(std::size_t rank, const list& offsets, const list& sizes, std::size_t count) {
  const auto report = check_overlaps(rank, offsets, sizes, owners(count));
  CHECK(report.total == static_cast<std::int64_t>(report.problems.size()));
  return texts(report);
}

std::vector<std::string> shards(const extents& shape, const list& offsets, const list& sizes, std::size_t count) {
  return texts(check_boxes(shape, offsets, sizes, owners(count), 100, owner_space::ranks, equal_boxes::overlap));
}

using lines = std::vector<std::string>;

}  // namespace

TEST_CASE("equal boxes are replicas, or overlap where replicas are not known") {
  const list offsets{0, 2, 0, 0}, sizes{2, 2, 2, 2};
  CHECK(check_boxes({4}, offsets, sizes, owners(4)).ok());
  CHECK(shards({4}, offsets, sizes, 4) ==
        lines{"ranks 0 and 2 overlap in [0:2)", "ranks 0 and 3 overlap in [0:2)", "ranks 2 and 3 overlap in [0:2)"});
  CHECK(overlaps(1, offsets, sizes, 4).size() == 3);
  // A tensor of one cell is not a scalar: two holders are replicas in a distribution, and overlap as shards.
  CHECK(check_boxes({1}, list{0, 0}, list{1, 1}, owners(2)).ok());
  CHECK(shards({1}, {0, 0}, {1, 1}, 2) == lines{"ranks 0 and 1 overlap in [0:1)"});
}

TEST_CASE("shards of a scalar are copies everywhere, unlike PyTorch's, which overlap") {
  CHECK(shards({}, {}, {}, 2).empty());
  CHECK(overlaps(0, {}, {}, 5).empty());
  CHECK(shards({}, {}, {}, 0) == lines{"[) is held by no rank"});
}

TEST_CASE("empty shards overlap nothing, unlike PyTorch's, wherever they lie") {
  CHECK(shards({6}, {0, 3, 2, 3}, {3, 3, 0, 0}, 4).empty());
  CHECK(overlaps(1, {0, 3, 2, 2}, {3, 3, 0, 0}, 4).empty());
  CHECK(overlaps(1, {0, 2}, {4, 0}, 2).empty());
  CHECK(shards({0, 4}, {0, 0, 0, 0}, {0, 4, 0, 4}, 2).empty());  // identical shards of a zero-row tensor
  CHECK(overlaps(2, {0, 0, 0, 0}, {4, 0, 4, 0}, 2).empty());     // zero columns
  CHECK(overlaps(2, {1, 0, 0, 0}, {0, 4, 4, 4}, 2).empty());
  CHECK(overlaps(1, {}, {}, 0).empty());
}

TEST_CASE("overlaps are found without asking for coverage") {
  CHECK(overlaps(1, {10, 100}, {5, 5}, 2).empty());
  CHECK(overlaps(1, {10, 14, 100}, {5, 5, 5}, 3) == lines{"ranks 0 and 1 overlap in [14:15)"});
  CHECK(overlaps(2, {0, 0, 1, 1, 5, 5}, {2, 2, 2, 2, 1, 1}, 3) == lines{"ranks 0 and 1 overlap in [1:2, 1:2)"});
  CHECK(overlaps(3, {0, 0, 0, 0, 0, 1}, {1, 1, 1, 1, 1, 1}, 2).empty());
}

TEST_CASE("check_overlaps reports boxes that are none, and compares the others") {
  const std::int64_t most = INT64_MAX;
  CHECK(overlaps(1, {-1, 0, most, most - 1, 1}, {1, -2, 1, 1, most - 1}, 5) ==
        lines{"rank 0 has a box with offsets [-1] and sizes [1]", "rank 1 has a box with offsets [0] and sizes [-2]",
              "rank 2 has a box with offsets [" + std::to_string(most) + "] and sizes [1]",
              "ranks 3 and 4 overlap in [" + std::to_string(most - 1) + ":" + std::to_string(most) + ")"});
}

TEST_CASE("tensors of nearly 2^63 cells are checked exactly") {
  const std::int64_t half = std::int64_t{1} << 61;
  CHECK(shards({2 * half, 2}, {0, 0, half, 0}, {half, 2, half, 2}, 2) == lines{});
  CHECK(shards({2 * half, 1}, {0, 0, half, 0}, {half + 1, 1, half - 1, 1}, 2) ==
        lines{"ranks 0 and 1 overlap in [" + std::to_string(half) + ":" + std::to_string(half + 1) + ", 0:1)",
              "[" + std::to_string(2 * half - 1) + ":" + std::to_string(2 * half) + ", 0:1) is held by no rank"});
}

TEST_CASE("boxes of 16 dimensions are as good as others") {
  list offsets, sizes;
  for (std::int64_t i = 0; i < 4096; ++i)
    for (std::int64_t d = 0; d < 16; ++d) {
      offsets.push_back(d < 12 ? (i >> d & 1) * 2 : 0);
      sizes.push_back(2);
    }
  extents shape = extents::filled(16, 4);
  for (std::size_t d = 12; d < 16; ++d) shape[d] = 2;
  CHECK(shards(shape, offsets, sizes, 4096).empty());
  CHECK(overlaps(16, offsets, sizes, 4096).empty());
  sizes[16 * 77 + 5] = 1;
  const auto gap = check_boxes(shape, offsets, sizes, owners(4096));
  REQUIRE(gap.total == 1);
  CHECK(gap.problems[0].where.volume() == 1 << 15);
  CHECK(gap.problems[0].where.sizes[5] == 1);
  sizes[16 * 77 + 5] = 2;
  offsets[16 * 4 + 2] = 1;  // box 4 = [2:4) along dimension 2, now [1:3)
  const auto both = check_boxes(shape, offsets, sizes, owners(4096));
  REQUIRE(both.total == 2);
  CHECK(both.problems[0].kind == cover_kind::overlap);
  CHECK(both.problems[0].first_index == 0);
  CHECK(both.problems[0].second_index == 4);
  CHECK(both.problems[1].kind == cover_kind::gap);
}
