// SPDX-License-Identifier: Apache-2.0
// Tests the parsing of index expressions, and the relations that they give for known sizes.
#include <catch2/catch_test_macros.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

import shardmesh.mapping;

using namespace shardmesh;

namespace {

index_relation related(std::string_view text, const named_sizes& sizes) {
  return relate(parse_index_rule(text).value(), sizes).value();
}

std::string error_of(std::string_view text, const named_sizes& sizes) {
  const auto parsed = parse_index_rule(text);
  if (!parsed) return to_string(parsed.error());
  const auto made = relate(*parsed, sizes);
  REQUIRE_FALSE(made);
  return to_string(made.error());
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("index expressions are written as they are parsed") {
  for (const std::string_view text : {
           "q: (g r d) h, k: (g d) h, v: (g d) h -> qkv: (g [q:r | k | v] d) h",
           "a: x y -> b: y x",
           "a: -> b: 1 1",
           "w: v h -> p: [w:v | _:pad] h",
           "k: (g d) -> r: (g n* d)",
           "q: (q d) h -> qkv: [q:(q d) | k:(kv d)] h",
       }) {
    INFO(text);
    const auto parsed = parse_index_rule(text);
    REQUIRE(parsed);
    CHECK(to_string(*parsed) == text);
    CHECK(parse_index_rule(to_string(*parsed)).value() == *parsed);
  }
  CHECK(parse_index_rule("")->is_rename());
}

TEST_CASE("wrong index expressions name the column") {
  for (const std::string_view text :
       {"a: x", "a x -> b: x", "a: x ->", "a: (x -> b: x", "a: [p:x -> b: x", "a: x -> b: [p:", "a: x, a: y -> b: x",
        "a: 2 x -> b: x", "a: _ -> b: x", "_: x -> b: x", "a: x -> b: x )"}) {
    INFO(text);
    const auto parsed = parse_index_rule(text);
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().message.find("column") != std::string::npos);
  }
}

TEST_CASE("a fused q, k, and v relate to their parts") {
  const auto made = related("q: (g r d) h, k: (g d) h, v: (g d) h -> qkv: (g [q:r | k | v] d) h",
                            {{"g", 2}, {"r", 3}, {"d", 4}, {"h", 5}});
  CHECK(made.left[0].shape == extents{24, 5});
  CHECK(made.left[1].shape == extents{8, 5});
  CHECK(made.right[0].shape == extents{40, 5});
  CHECK(made.right[0].related_elements == 200);
  REQUIRE(made.pieces.size() == 3);
  CHECK(made.pieces[1].right_origin == extents{12, 0});  // k, after the three heads of q
}

TEST_CASE("filler and repetitions are counted") {
  const auto padded = related("w: v h -> p: [w:v | _:pad] h", {{"v", 5}, {"h", 2}, {"pad", 3}});
  CHECK(padded.right[0].shape == extents{8, 2});
  CHECK(padded.right[0].related_elements == 10);
  const auto repeated = related("k: (g d) -> r: (g n* d)", {{"g", 2}, {"n", 3}, {"d", 4}});
  CHECK(repeated.right[0].shape == extents{24});
  CHECK(repeated.right[0].related_elements == 24);
  CHECK(repeated.left[0].related_elements == 8);
}

TEST_CASE("rules whose sides do not agree are errors") {
  const named_sizes sizes{{"a", 2}, {"b", 3}, {"c", 4}, {"huge", INT64_MAX / 2}};
  CHECK(contains(error_of("x: a b -> y: a", sizes), "lacks the factor 'b'"));
  CHECK(contains(error_of("x: a -> y: a b", sizes), "lacks the factor 'b'"));
  CHECK(contains(error_of("x: a a -> y: a", sizes), "occurs twice"));
  CHECK(contains(error_of("x: a, y: a -> z: [x | w] a", sizes), "lacks the part 'y'"));
  CHECK(contains(error_of("x: a, y: a -> z: [x | y | w] a", sizes), "lacks the part 'w'"));
  CHECK(contains(error_of("x: a, y: a -> z: [x | y | x] a", sizes), "twice"));
  CHECK(contains(error_of("x: a, y: a -> z: [x | y] [y | x] a", sizes), "belongs to the parts"));
  CHECK(contains(error_of("x: a* -> y: a*", sizes), "on both sides"));
  CHECK(contains(error_of("x: a d -> y: a d", sizes), "'d' is unknown"));
  CHECK(contains(error_of("x: (huge a b) -> y: (huge b a)", sizes), "64 bits"));
}

TEST_CASE("filler is one region with all that is below it") {
  std::string text = "x: (";
  for (int i = 0; i < 40; ++i) text += " [_ | a]";  // 2^40 choices
  const auto made = related(text + ") -> a: one", {{"one", 1}});
  CHECK(made.left[0].shape == extents{std::int64_t{1} << 40});
  CHECK(made.left[0].related_elements == 1);
  CHECK(made.left[0].fillers.size() == 40);
  REQUIRE(made.pieces.size() == 1);
  CHECK(made.pieces[0].left_origin == extents{(std::int64_t{1} << 40) - 1});
}

TEST_CASE("index expressions have a limited length, and a limited number of factors") {
  const auto length = parse_index_rule("a: " + std::string(5000, 'x') + " -> b: x");
  REQUIRE_FALSE(length);
  CHECK(length.error().expected == "at most 4096 characters");
  std::string ones = "a: (";
  for (int i = 0; i < 100; ++i) ones += " 1";
  const auto factors = parse_index_rule(ones + ") -> b: 1");
  REQUIRE_FALSE(factors);
  CHECK(factors.error().expected == "at most 64 factors");
}

TEST_CASE("sizes are computed from shapes") {
  const auto rule = parse_index_rule("x: (a b) c, y: c -> z: (b a) c").value();
  named_sizes sizes{{"a", 4}};
  const std::vector<std::optional<extents>> left{extents{12, 5}, extents{5}}, right(1);
  REQUIRE(infer_sizes(rule, left, right, sizes));
  CHECK(sizes == named_sizes{{"a", 4}, {"b", 3}, {"c", 5}});
  named_sizes wrong{{"a", 5}};
  const auto indivisible = infer_sizes(rule, left, right, wrong);
  REQUIRE_FALSE(indivisible);
  CHECK(indivisible.error().code == errc::shape_mismatch);
  CHECK(indivisible.error().found == "12");
  const std::vector<std::optional<extents>> flat{extents{60}, extents{5}};
  CHECK(infer_sizes(rule, flat, right, sizes).error().code == errc::shape_mismatch);
}
