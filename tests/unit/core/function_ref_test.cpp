// SPDX-License-Identifier: Apache-2.0
// Tests that a function_ref calls its target: an object, a const object, or a plain function.
#include <catch2/catch_test_macros.hpp>

import shardmesh.core;

using namespace shardmesh;

namespace {

int twice(int value) {
  return 2 * value;
}

int apply(function_ref<int(int)> f, int value) {
  return f(value);
}

struct adds {
  int by = 0;
  int calls = 0;
  int operator()(int value) {
    ++calls;
    return value + by;
  }
  int operator()(int value) const { return value - by; }
};

}  // namespace

TEST_CASE("a function_ref calls plain functions, objects and const objects") {
  CHECK(apply(twice, 21) == 42);
  CHECK(apply(&twice, 4) == 8);
  CHECK(apply([](int value) { return value + 1; }, 1) == 2);
  adds three{3};
  CHECK(apply(three, 4) == 7);
  CHECK(apply(three, 5) == 8);
  CHECK(three.calls == 2);
  const adds less{3};
  CHECK(apply(less, 4) == 1);
}
