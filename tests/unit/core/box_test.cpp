// SPDX-License-Identifier: Apache-2.0
// Tests boxes and volumes without overflow, and the text of an error.
#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

import shardmesh.core;

using namespace shardmesh;

TEST_CASE("a box is spelled by its begins and ends, one whose end fits in no number by its sizes") {
  CHECK(to_string(box{{4, 0}, {2, 7}}) == "[4:6, 0:7)");
  CHECK(to_string(box{}) == "[)");
  CHECK(to_string(box{{0, INT64_MAX}, {3, 1}}) == "[0:3, 9223372036854775807:9223372036854775807+1)");
}

TEST_CASE("two boxes intersect in their common indices") {
  const box a{{0, 2}, {4, 4}};
  const box b{{2, 0}, {4, 3}};
  const auto common = intersect(a, b);
  REQUIRE(common);
  CHECK(*common == box{{2, 2}, {2, 1}});
  CHECK_FALSE(intersect(a, box{{4, 2}, {1, 1}}));
  CHECK(intersect(box{}, box{}));
}

TEST_CASE("a box whose end does not fit in 64 bits is not well formed") {
  CHECK_FALSE(is_well_formed({{INT64_MAX}, {1}}));
  CHECK_FALSE(is_well_formed({{-1}, {1}}));
  CHECK_FALSE(is_well_formed({{0, 0}, {1}}));
  CHECK(is_well_formed({{5}, {0}}));
}

TEST_CASE("volumes are checked, and a zero size wins over overflow") {
  CHECK(checked_volume(extents{}) == 1);
  CHECK(checked_volume(extents{INT64_MAX, 2}) == std::nullopt);
  CHECK(checked_volume(extents{INT64_MAX, 2, 0}) == 0);
  CHECK(checked_volume(extents{-1}) == std::nullopt);
  // A constant expression that overflows does not compile.
  static_assert(box{{0, 0, 0}, {INT64_MAX, 2, 0}}.volume() == 0);
  static_assert(box{{0, 0}, {3, 2}}.volume() == 6);
}

TEST_CASE("an error's text names key, file, boxes, ranks, expectation and hint in one line") {
  const error e = fail(errc::overlap, "shards overlap")
                      .with_key("w\n")
                      .with_file("dir/.metadata")
                      .with_rank(2)
                      .with_rank(5)
                      .with_box({{4, 0}, {2, 8}})
                      .with_values("one holder", "two")
                      .with_hint("save again");
  CHECK(to_string(e) ==
        "dir/.metadata: w\\n: shards overlap in [4:6, 0:8) (ranks 2, 5): expected one holder, found two; save again");
  CHECK(to_string(fail(errc::disagreement, "values differ").with_key("step").with_box({}).with_rank(1)) ==
        "step: values differ (rank 1)");
}

TEST_CASE("row-major strides count sizes of 0 as 1, and do not wrap") {
  constexpr std::int64_t huge = std::int64_t{1} << 62;
  CHECK(contiguous_strides({2, 3, 5}) == extents{15, 5, 1});
  CHECK(contiguous_strides({2, 0, 5}) == extents{5, 5, 1});
  CHECK(contiguous_strides({4, huge, 0}) == extents{huge, 1, 1});
  CHECK(contiguous_strides({2, 4, huge}) == extents{std::numeric_limits<std::int64_t>::max(), huge, 1});
}

TEST_CASE("a box of a negative size is not well formed, and one that ends one index too far does not lie within") {
  CHECK(is_well_formed({{0}, {0}}));
  CHECK_FALSE(is_well_formed({{0}, {-1}}));
  CHECK_FALSE(is_well_formed({{-1}, {1}}));
  CHECK(lies_within({{2}, {2}}, box::whole({4})));
  CHECK_FALSE(lies_within({{2}, {3}}, box::whole({4})));
}
