// SPDX-License-Identifier: Apache-2.0
// Tests result<T>: values and errors pass through chains as in std::expected.
#include <catch2/catch_test_macros.hpp>
#include <concepts>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
import shardmesh.core;

using namespace shardmesh;

namespace {

result<int> half(int value) {
  if (value % 2 != 0) return fail(errc::invalid_argument, "is odd");
  return value / 2;
}
result<void> positive(int value) {
  if (value <= 0) return fail(errc::invalid_argument, "is not positive");
  return {};
}

// Concepts: a continuation returns a result.
auto doubled = [](int value) { return 2 * value; };
static_assert(result_continuation<decltype(half)&, int>);
static_assert(!result_continuation<decltype(doubled)&, int>);
static_assert(!result_continuation<decltype(half)&, std::string>);
static_assert(some_result<result<void>> && some_result<const result<int>&> && !some_result<int>);
static_assert(result_value<int> && !result_value<error> && !result_value<int&> && !result_value<int[2]>);
static_assert(std::same_as<result<int>::error_type, error>);

}  // namespace

TEST_CASE("a chain goes on with values, and carries the first error past what follows") {
  CHECK(half(8).and_then(half).and_then(half).value() == 1);
  int calls = 0;
  const auto counted = [&](int value) { return ++calls, half(value); };
  const auto refused = half(6).and_then(counted).and_then(counted);
  REQUIRE_FALSE(refused);
  CHECK(refused.error() == fail(errc::invalid_argument, "is odd"));
  CHECK(calls == 1);
  const result<int> kept = half(8);
  CHECK(kept.and_then(half).value() == 2);
  CHECK(kept.value() == 4);
}

TEST_CASE("transform changes a value, to nothing too, and leaves an error alone") {
  CHECK(half(8).transform(doubled).value() == 8);
  CHECK(half(7).transform(doubled).error().message == "is odd");
  int seen = 0;
  const result<void> done = half(8).transform([&](int value) { seen = value; });
  CHECK((done && seen == 4));
  const result<int> kept = half(10);
  CHECK(kept.transform([](int value) { return std::to_string(value); }).value() == "5");
  CHECK(positive(1).transform([] { return 7; }).value() == 7);
  CHECK(positive(0).transform([] { return 7; }).error().message == "is not positive");
  CHECK(positive(1).transform([] {}).has_value());
}

TEST_CASE("or_else answers an error, with a value or another error") {
  CHECK(half(7).or_else([](error) -> result<int> { return 3; }).value() == 3);
  CHECK(half(8).or_else([](error) -> result<int> { return 3; }).value() == 4);
  const auto named = half(7).or_else([](error e) { return std::move(e).with_key("k"); });
  CHECK(named.error().key == "k");
  CHECK(positive(0).or_else([](error) -> result<void> { return {}; }));
  CHECK(positive(0).or_else([](error e) { return std::move(e).with_key("k"); }).error().key == "k");
}

TEST_CASE("values are taken out without a copy, or replaced where there are none") {
  result<std::unique_ptr<int>> made = std::make_unique<int>(3);
  CHECK(*std::move(made)
             .and_then([](std::unique_ptr<int> p) { return result<std::unique_ptr<int>>(std::move(p)); })
             .value() == 3);
  CHECK(half(8).value_or(9) == 4);
  CHECK(half(7).value_or(9) == 9);
  const result<std::string> none = fail(errc::io, "gone");
  CHECK(none.value_or("text") == "text");
  CHECK(positive(2).and_then([] { return half(4); }).value() == 2);
  CHECK(positive(-2).and_then([] { return half(4); }).error().message == "is not positive");
}

TEST_CASE("the value of an error throws it") {
  try {
    static_cast<void>(half(7).value());
    FAIL("nothing was thrown");
  } catch (const exception& e) {
    CHECK(e.error() == fail(errc::invalid_argument, "is odd"));
    CHECK(std::string(e.what()) == to_string(e.error()));
  }
}
