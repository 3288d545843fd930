// SPDX-License-Identifier: Apache-2.0
// Tests the selection of keys: only, skip, renames, prefixes, and casts, in their order. Also tests what is refused,
// and why.
#include <catch2/catch_test_macros.hpp>
#include <shardmesh/dtype.hpp>

#include <string>
#include <utility>
#include <vector>

import shardmesh.checkpoint;

using namespace shardmesh;

namespace {

using keys = std::vector<std::string>;

std::vector<selectable> tensors(const keys& names, dtype type = dtype::float32) {
  std::vector<selectable> made;
  for (const std::string& key : names) made.push_back({key, type, true});
  return made;
}

std::vector<key_pattern> patterns(const keys& texts) {
  std::vector<key_pattern> made;
  for (const std::string& text : texts) made.push_back(key_pattern::compile(text).value());
  return made;
}

std::vector<rename_rule> renames(const keys& texts) {
  std::vector<rename_rule> made;
  for (const std::string& text : texts) made.push_back(parse_rename_rule(text).value());
  return made;
}

std::vector<cast_rule> casts(const keys& texts) {
  std::vector<cast_rule> made;
  for (const std::string& text : texts) made.push_back(parse_cast_rule(text).value());
  return made;
}

keys kept(const selection_options& options, const keys& names) {
  const auto found = select_keys(tensors(names), options);
  for (const error& e : found.errors) UNSCOPED_INFO(to_string(e));
  CHECK(found.errors.empty());
  CHECK(found.kept.size() + found.excluded == names.size());
  keys made;
  for (const selected& s : found.kept) made.push_back(s.key);
  return made;
}

}  // namespace

TEST_CASE("without options every key is kept as it is") {
  CHECK(kept({}, {"b", "a"}) == keys{"b", "a"});
}

TEST_CASE("only and skip match whole keys") {
  const keys names{"model.w", "model.w2", "x.model.w", "model.b"};
  CHECK(kept({.only = patterns({R"(model\.w)"})}, names) == keys{"model.w"});
  CHECK(kept({.only = patterns({R"(model\..*)"}), .skip = patterns({".*2", ".*b"})}, names) == keys{"model.w"});
  CHECK(kept({.only = patterns({"model.w|model.b", "x.*"})}, names) == keys{"model.w", "x.model.w", "model.b"});
}

TEST_CASE("keys that are not UTF-8 are matched byte by byte, and a dot is any character") {
  const keys names{"a\xFF", "a\xC3\xA9", "a\n"};
  CHECK(kept({.only = patterns({"a."})}, names) == names);
  CHECK(kept({.only = patterns({"a\xC3\xA9"})}, names) == keys{"a\xC3\xA9"});
  CHECK(kept({.only = patterns({"a\\xFF"})}, names) == keys{"a\xFF"});
  CHECK(kept({.rename = renames({"a(.)=\\1"})}, {"a\xFF"}) == keys{"\xFF"});
}

TEST_CASE("renames are applied in order, split at the last equals sign, with groups") {
  CHECK(kept({.rename = renames({R"((.*)\.weight=\1.w)", R"(net\.(\d+)\.(.*)=layer.\2.\1)"})},
             {"net.3.weight", "net.4.bias", "other"}) == keys{"layer.w.3", "layer.bias.4", "other"});
  CHECK(kept({.rename = renames({"a=b=c"})}, {"a=b"}) == keys{"c"});
  CHECK(kept({.rename = renames({"x="})}, {"x"}) == keys{""});
}

TEST_CASE("a prefix is stripped before renames") {
  CHECK(kept({.strip_prefix = "module.", .rename = renames({"w=v"})}, {"module.w", "w2", "module.module.w"}) ==
        keys{"v", "w2", "module.w"});
}

TEST_CASE("two keys that meet after renaming are an error that names both") {
  const auto found = select_keys(tensors({"a", "b"}), {.rename = renames({"[ab]=c"})});
  REQUIRE(found.errors.size() == 1);
  CHECK(found.errors[0].code == errc::invalid_argument);
  CHECK(to_string(found.errors[0]) == "c: a and b would both be called c");
}

TEST_CASE("an unused rule that matches keys says why none of them is changed") {
  const selection_options options{.skip = patterns({"a.*"}),
                                  .strip_prefix = "a.",
                                  .rename = renames({"a.(x)=b"}),
                                  .cast = casts({"a.x=half", "o=half"})};
  std::vector<selectable> keys{{"a.x", dtype::float32, true}, {"w", dtype::float32, true}};
  keys.push_back({"o", dtype::undefined, false});
  std::vector<std::string> texts;
  for (const error& e : select_keys(keys, options).errors) texts.push_back(to_string(e));
  CHECK(texts ==
        std::vector<std::string>{
            "strip_prefix 'a.' matches only keys that the selection leaves out; pass allow_unused to ignore this",
            "rename 'a.(x)=b' matches only keys that the selection leaves out; pass allow_unused to ignore this",
            "cast 'a.x=half' matches only keys that the selection leaves out; pass allow_unused to ignore this",
            "cast 'o=half' matches only objects, which are not cast; pass allow_unused to ignore this"});
}

TEST_CASE("a rule that matches nothing is an error unless that is allowed") {
  selection_options options{.only = patterns({".*", "nothing"}),
                            .skip = patterns({"no"}),
                            .strip_prefix = "pre",
                            .rename = renames({"q=r"}),
                            .cast = casts({"z=half"})};
  const auto found = select_keys(tensors({"a"}), options);
  std::vector<std::string> texts;
  for (const error& e : found.errors) texts.push_back(e.message);
  CHECK(texts == std::vector<std::string>{"only 'nothing' matches no key", "skip 'no' matches no key",
                                          "strip_prefix 'pre' matches no key", "rename 'q=r' matches no key",
                                          "cast 'z=half' matches no key"});
  options.allow_unused = true;
  CHECK(select_keys(tensors({"a"}), options).errors.empty());
}

TEST_CASE("a dtype casts floating tensors only, a pattern FP8 too, and integers where they are named; the first wins") {
  const std::vector<selectable> given{{"f", dtype::float32, true},   {"h", dtype::float16, true},
                                      {"i", dtype::int64, true},     {"q", dtype::float8_e4m3fn, true},
                                      {"c", dtype::complex64, true}, {"d", dtype::float64, true},
                                      {"o", dtype::undefined, false}};
  const auto types = [&](std::vector<std::string> rules) {
    const auto found = select_keys(given, {.cast = casts(rules), .allow_narrowing = true});
    CHECK(found.errors.empty());
    std::vector<dtype> made;
    for (const selected& s : found.kept) made.push_back(s.type);
    return made;
  };
  CHECK(types({"bfloat16"}) == std::vector<dtype>{dtype::bfloat16, dtype::bfloat16, dtype::int64, dtype::float8_e4m3fn,
                                                  dtype::complex64, dtype::bfloat16, dtype::undefined});
  CHECK(types({"[iq]=float32", "d=float64", "half"}) == std::vector<dtype>{dtype::float16, dtype::float16, dtype::int64,
                                                                           dtype::float32, dtype::complex64,
                                                                           dtype::float64, dtype::undefined});
  CHECK(types({"[iq]=float32", "i=int64:float32", "int32", "complex128"}) ==
        std::vector<dtype>{dtype::float32, dtype::float16, dtype::float32, dtype::float32, dtype::complex128,
                           dtype::float64, dtype::undefined});
  CHECK(types({"float32:float64", "int64:int16"}) == std::vector<dtype>{dtype::float64, dtype::float16, dtype::int16,
                                                                        dtype::float8_e4m3fn, dtype::complex64,
                                                                        dtype::float64, dtype::undefined});
}

TEST_CASE("a cast that does not exist is an error with the key") {
  const auto found = select_keys(tensors({"w"}, dtype::float4_e2m1fn_x2), {.cast = casts({"w=float32"})});
  REQUIRE(found.errors.size() == 1);
  CHECK(found.errors[0].code == errc::invalid_argument);
  CHECK(to_string(found.errors[0]) == "w: float4_e2m1fn_x2 cannot be converted to float32");
}

TEST_CASE("bad rules are refused with their text and the reason") {
  const auto message = [](const auto& refused) {
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::invalid_argument);
    return refused.error().message;
  };
  CHECK(message(key_pattern::compile("a(")) == "'a(': missing ): a(");
  CHECK(message(key_pattern::compile("*")).starts_with("'*': no argument for repetition"));
  CHECK(message(parse_rename_rule("abc")) == "'abc' is not RE=REPLACEMENT");
  CHECK(message(parse_rename_rule("a=\\1")).find("requests 1 matches") != std::string::npos);
  CHECK(message(rename_rule::make(key_pattern::exactly("a"), "\\1")).find("requests 1 matches") != std::string::npos);
  CHECK(message(parse_cast_rule("floaty")) == "'floaty': no dtype is called floaty");
  CHECK(message(parse_cast_rule("w=")).find("no dtype is called") == std::string::npos);
  for (const char* rule : {"", "w=", ":float32", "float32:"})
    CHECK(message(parse_cast_rule(rule)) == "'" + std::string(rule) + "': the name of a dtype is missing");
}

TEST_CASE("patterns are values: equal when their text is, the empty one matches the empty key, an exact one its key") {
  CHECK(key_pattern::compile("a.*").value() == key_pattern::compile("a.*").value());
  CHECK(key_pattern::compile("a.*").value() != key_pattern::compile("a").value());
  CHECK(key_pattern() == key_pattern::compile("").value());
  CHECK(key_pattern().matches(""));
  CHECK_FALSE(key_pattern().matches("a"));
  CHECK(key_pattern::exactly("a.b").matches("a.b"));
  CHECK_FALSE(key_pattern::exactly("a.b").matches("a_b"));
  CHECK(key_pattern::exactly("a\xFF(").matches("a\xFF("));
  CHECK(parse_rename_rule("a=b=c").value().text() == "a=b=c");
}

TEST_CASE("a name that matches nothing is answered with the key that is near, an expression is not") {
  const auto hint = [](const selection_options& options) {
    return select_keys(tensors({"model.layers.0.weight", "model.layers.0.bias"}), options).errors.at(0).hint;
  };
  const std::string lets = "pass allow_unused to ignore this";
  CHECK(hint({.only = patterns({"model.layers.0.wieght"})}) == "did you mean model.layers.0.weight? " + lets);
  CHECK(hint({.skip = patterns({R"(layers\.0\.bias)"})}) == "did you mean model.layers.0.bias? " + lets);
  CHECK(hint({.rename = renames({"model.layer.0.bias=b"})}) == "did you mean model.layers.0.bias? " + lets);
  CHECK(hint({.only = patterns({"model.layers.0.wieght.*"})}) == lets);
  CHECK(hint({.strip_prefix = "modul."}) == lets);
}

TEST_CASE("an expression that would explode elsewhere is linear here") {
  CHECK(
      select_keys(tensors({std::string(100000, 'a')}), {.only = patterns({"(a*)*b"}), .allow_unused = true}).excluded ==
      1);
}

TEST_CASE("optimizer state is left out on demand") {
  CHECK(kept({.no_optimizer = true}, {"model.w", "optim.state.w.exp_avg", "optim.param_groups.0.lr", "epoch"}) ==
        keys{"model.w", "epoch"});
}
