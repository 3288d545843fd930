// SPDX-License-Identifier: Apache-2.0
// Tests rank groups: both numberings, their text, and refusals.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>
import shardmesh.comm;

using namespace shardmesh;

TEST_CASE("the default group is one rank, 0") {
  const rank_group group;
  CHECK(group.size() == 1);
  CHECK(group.global(0) == 0);
  CHECK(group == rank_group::world(1));
}

TEST_CASE("the world numbers its ranks as they are") {
  const rank_group world = rank_group::world(4);
  CHECK(world.is_world());
  CHECK(world.globals() == std::vector<std::int32_t>{0, 1, 2, 3});
  CHECK(world.group_rank(3) == 3);
  CHECK(world.group_rank(4) == std::nullopt);
  CHECK(world.group_rank(-1) == std::nullopt);
  CHECK(rank_group::make({0, 1, 2, 3}).value() == world);
  CHECK(rank_group::make({0, 1, 2, 3}).value().is_world());
}

TEST_CASE("a group maps both ways between its ranks and global ranks, in its own order") {
  const rank_group group = rank_group::make({7, 0, 3}).value();
  CHECK_FALSE(group.is_world());
  CHECK(group.size() == 3);
  CHECK(group.global(0) == 7);
  CHECK(group.global(2) == 3);
  CHECK(group.group_rank(7) == 0);
  CHECK(group.group_rank(0) == 1);
  CHECK(group.group_rank(3) == 2);
  CHECK(group.group_rank(1) == std::nullopt);
  CHECK(group == rank_group::make({7, 0, 3}).value());
  CHECK_FALSE(group == rank_group::make({0, 7, 3}).value());
  CHECK_FALSE(group == rank_group::world(3));
  CHECK(to_string(group) == "[7, 0, 3]");
}

TEST_CASE("the text of a long group is shortened") {
  const std::string text = to_string(rank_group::world(1000));
  CHECK(text.size() < 100);
  CHECK(text.find("1000 ranks") != std::string::npos);
}

TEST_CASE("a group without ranks, with a negative one or with one twice is refused by name") {
  CHECK(rank_group::make({}).error().code == errc::invalid_argument);
  const auto negative = rank_group::make({0, -2});
  CHECK(negative.error().code == errc::invalid_argument);
  CHECK(to_string(negative.error()).find("-2") != std::string::npos);
  const auto twice = rank_group::make({4, 1, 4});
  CHECK(twice.error().code == errc::invalid_argument);
  CHECK(twice.error().ranks == std::vector<std::int32_t>{4});
}
