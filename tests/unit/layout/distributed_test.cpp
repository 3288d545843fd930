// SPDX-License-Identifier: Apache-2.0
// Tests the queries that all distributed types share: layouts, distributions, a user's own type, and one that only
// gives errors.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <string>
#include <vector>
import shardmesh.layout;

using namespace shardmesh;

namespace users {

// Rank i holds the elements [2 i, 2 i + 2) of `length`; the tensor may be longer.
struct pairs {
  std::int32_t ranks = 0;
  std::int64_t length = 0;
};
result<distribution> distribution_of(const pairs& p) {
  if (p.ranks < 0) return fail(errc::invalid_argument, "pairs of nobody").with_rank(p.ranks);
  distribution_builder builder({p.length}, owner_space::ranks);
  for (std::int32_t i = 0; i < p.ranks; ++i) builder.add(i, 0, extents{2 * i}, extents{2});
  return builder.finish();
}

}  // namespace users

TEST_CASE("the fragments of an owner are listed, whatever is distributed") {
  const layout rows = layout::make(device_mesh::make({2}).value(), {placement::shard(0)}, {5, 3}).value();
  const std::vector<fragment> lower{{{{3, 0}, {2, 3}}, 1, 0, {0, 0}, 0}};
  CHECK(fragments_of(rows, 1).value() == lower);
  CHECK(fragments_of(distribute(rows).value(), 1).value() == lower);
  CHECK(fragments_of(rows, 2).value().empty());
  const std::vector<fragment> second{{{{2}, {2}}, 1, 0, {0}, 0}};
  CHECK(fragments_of(users::pairs{2, 4}, 1).value() == second);
}

TEST_CASE("whatever is distributed is checked for gaps") {
  CHECK(check_cover(users::pairs{2, 4}).value().ok());
  const cover_report found = check_cover(users::pairs{2, 6}).value();
  REQUIRE(found.total == 1);
  CHECK(to_string(found.problems[0]) == "[4:6) is held by no rank");
}

TEST_CASE("who cannot say what it holds gives its error to every question") {
  const users::pairs nobody{-3, 4};
  CHECK(check_cover(nobody).error().ranks == std::vector<std::int32_t>{-3});
  CHECK(fragments_of(nobody, 0).error().message == "pairs of nobody");
}
