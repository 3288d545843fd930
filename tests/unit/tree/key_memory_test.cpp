// SPDX-License-Identifier: Apache-2.0
// Tests keys when memory runs out.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <new>
#include <optional>
#include <string>

#include "counted_new.hpp"

import shardmesh.tree;

using namespace shardmesh;

TEST_CASE("a key that finds no memory is an exception, and nothing else", "[path_key]") {
  SKIP_WHERE_NOTHING_IS_COUNTED();
  // So short that only the key itself needs memory.
  const auto has_none = [](auto&& make) {
    counted_new::has_no_memory = true;
    bool is_thrown = false;
    try {
      make();
    } catch (const std::bad_alloc&) {
      is_thrown = true;
    }
    counted_new::has_no_memory = false;
    return is_thrown;
  };
  CHECK(has_none([] { path_key::of_python("a", "N."); }));
  CHECK(has_none([] { path_key("longer than what fits into a key itself"); }));
  CHECK(path_key::of_python("a", "N.") == path_key::of_python("a", "N."));
}
