// SPDX-License-Identifier: Apache-2.0
// Tests the values of size expressions, and their errors.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.mapping;

using namespace shardmesh;

namespace {

const named_sizes sizes{{"a", 12},           {"b", 5},       {"zero", 0},         {"text_config.hidden_size", 64},
                        {"most", INT64_MAX}, {"list[0]", 7}, {"list[5].full", 1}, {"list.has[12]", 1},
                        {"list.length", 3}};

std::int64_t value_of(std::string_view text) {
  return size_expression::parse(text).value().evaluate(sizes).value();
}

error error_of(std::string_view text) {
  auto parsed = size_expression::parse(text);
  if (!parsed) return std::move(parsed).error();
  auto value = parsed->evaluate(sizes);
  REQUIRE_FALSE(value);
  return std::move(value).error();
}

}  // namespace

TEST_CASE("size expressions have the usual precedence") {
  const std::vector<std::pair<std::string_view, std::int64_t>> cases{
      {"7", 7},
      {"a", 12},
      {" a + b * 2 ", 22},
      {"(a + b) * 2", 34},
      {"a - b - 1", 6},
      {"a / 4 / 3", 1},
      {"a // b", 2},
      {"-a // b", -3},
      {"-7 % 5", 3},
      {"-10 // b", -2},
      {"-10 % b", 0},
      {"(most // 2 + 2) % most", INT64_MAX / 2 + 2},  // the sum of the two numbers would overflow
      {"(-most - 1) // 3", INT64_MIN / 3 - 1},        // rounds down from the least number
      {"(-most - 1) % 3", 1},
      {"(-most - 1) // 1", INT64_MIN},
      {"a % b", 2},
      {"--a", 12},
      {"a > b", 1},
      {"a < b", 0},
      {"a >= 12 and b <= 5", 1},
      {"a == 12 and not b == 5", 0},
      {"zero or b", 1},
      {"not zero", 1},
      {"not not a", 1},
      {"absent ?? 3", 3},
      {"absent / 2 ?? other ?? a", 12},
      {"a ?? absent", 12},
      {"(absent ?? a / 4) / 3", 1},
      {"text_config.hidden_size / 2", 32},
      {"zero and absent", 0},  // the right side is not evaluated
      {"list[0] + list.length", 10},
      {"list[zero]", 7},
      {"list[b].full", 1},
      {"list[list[0] - 2].full", 1},
      {"list.has[ a ] and not (list.has[b] ?? 0)", 1},
      {"list[0].full ?? 4", 4},
      {"list[absent] ?? 4", 4},
  };
  for (const auto& [text, expected] : cases) {
    INFO(text);
    CHECK(value_of(text) == expected);
  }
}

TEST_CASE("size expressions that cannot be computed are errors") {
  CHECK(error_of("absent + 1").code == errc::missing_key);
  CHECK(to_string(error_of("absent + 1")).find("'absent'") != std::string::npos);
  CHECK(error_of("list[b - 6]").message.find("'list[-1]'") != std::string::npos);
  CHECK(error_of("list[a / b]").code == errc::invalid_argument);
  CHECK(error_of("a / b").code == errc::invalid_argument);  // 12 is not a multiple of 5
  CHECK(error_of("a / b").found == "12");
  CHECK(error_of("a // zero").code == errc::invalid_argument);
  CHECK(error_of("a % zero").code == errc::invalid_argument);
  CHECK(error_of("most + 1").code == errc::overflow);
  CHECK(error_of("most * 2").code == errc::overflow);
  CHECK(error_of("-most - 2").code == errc::overflow);
  CHECK(error_of("(a / b) ?? 3").code == errc::invalid_argument);  // only a missing name has a replacement
}

TEST_CASE("wrong size expressions name the column") {
  for (const std::string_view text : {"", "a +", "(a", "a b", "a ** b", "1x", "+a", "a ?? ", "99999999999999999999",
                                      "ä", "a[", "a[]", "a[1", "a[1)", "[1]", "a[1][2]", "a[1]b"}) {
    INFO(text);
    const auto parsed = size_expression::parse(text);
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().code == errc::invalid_argument);
    CHECK(parsed.error().message.find("column") != std::string::npos);
  }
  CHECK(size_expression::parse("a + ?").error().message.find("column 5") != std::string::npos);
}

TEST_CASE("the names of a size expression are in order, and have no index") {
  CHECK(size_expression::parse("b + list[layer - a].full * b").value().names() ==
        std::vector<std::string>{"b", "layer", "a", "list[].full"});
}

TEST_CASE("size expressions that nest without end are refused") {
  const std::string deep(100'000, '(');
  CHECK_FALSE(size_expression::parse(deep));
  CHECK_FALSE(size_expression::parse(std::string(1000, '(') + "1" + std::string(1000, ')')));
  std::string indices = "1";
  for (int i = 0; i < 1000; ++i) indices = "a[" + indices + "]";
  CHECK_FALSE(size_expression::parse(indices));
  std::string long_sum = "1";
  for (int i = 0; i < 100'000; ++i) long_sum += "+1";
  CHECK_FALSE(size_expression::parse(long_sum));
  CHECK(size_expression::parse("((((((1))))))"));
}
