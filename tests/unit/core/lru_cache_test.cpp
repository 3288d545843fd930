// SPDX-License-Identifier: Apache-2.0
// Tests which entries lru_cache keeps and evicts, against hand-written sequences.
#include <catch2/catch_test_macros.hpp>
#include <lru_cache.hpp>
#include <string>

using shardmesh::detail::lru_cache;

TEST_CASE("what was used longest ago gives way") {
  lru_cache<int, std::string> cache(2);
  cache.insert(1, "one");
  cache.insert(2, "two");
  REQUIRE(cache.find(1) != nullptr);  // now 2 is the oldest
  cache.insert(3, "three");
  CHECK(cache.find(2) == nullptr);
  CHECK(*cache.find(1) == "one");
  CHECK(*cache.find(3) == "three");
  CHECK(cache.size() == 2);
}

TEST_CASE("an insertion of what is there changes nothing, not even the order of use") {
  lru_cache<int, std::string> cache(2);
  cache.insert(1, "one");
  cache.insert(2, "two");
  cache.insert(1, "other");
  CHECK(cache.size() == 2);
  cache.insert(3, "three");
  CHECK(cache.find(1) == nullptr);
  CHECK(*cache.find(2) == "two");
}

TEST_CASE("a cache for nothing holds one value, and a cleared one none") {
  lru_cache<int, std::string> cache(0);
  cache.insert(1, "one");
  cache.insert(2, "two");
  CHECK(cache.find(1) == nullptr);
  CHECK(*cache.find(2) == "two");
  cache.clear();
  CHECK(cache.size() == 0);
  CHECK(cache.find(2) == nullptr);
}
