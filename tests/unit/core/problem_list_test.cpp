// SPDX-License-Identifier: Apache-2.0
// Tests the list in which calls collect their problems.
#include <catch2/catch_test_macros.hpp>

#include <string>
#include <utility>
#include <vector>

import shardmesh.core;

using namespace shardmesh;

namespace {

error missing(int number) {
  return fail(errc::missing_key, "is missing").with_key(std::to_string(number));
}

}  // namespace

TEST_CASE("a list without problems is a success") {
  detail::problem_list problems;
  CHECK(problems.empty());
  CHECK(std::move(problems).outcome());
}

TEST_CASE("a list of problems is one error with the first hundred, which counts the rest") {
  detail::problem_list problems;
  for (int i = 0; i < 103; ++i) problems.add(missing(i));
  CHECK(!problems.empty());
  const result<void> outcome = std::move(problems).outcome();
  REQUIRE(!outcome);
  std::vector<error> first;
  for (int i = 0; i < 100; ++i) first.push_back(missing(i));
  CHECK(outcome.error().more == 3);
  CHECK(outcome.error().problems() == first);
}
