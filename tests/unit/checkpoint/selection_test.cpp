// SPDX-License-Identifier: Apache-2.0
// Selection of keys: only, skip, renames, prefixes and casts, in their order; what is refused and why.
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

selection_result select_from(const selection_options& options, const std::vector<selectable>& given) {
  const auto compiled = selection::compile(options);
  REQUIRE(compiled);
  return compiled->apply(given);
}

keys kept(const selection_options& options, const keys& names) {
  const auto found = select_from(options, tensors(names));
  for (const error& e : found.errors) UNSCOPED_INFO(to_string(e));
  CHECK(found.errors.empty());
  CHECK(found.kept.size() + found.excluded == names.size());
  keys made;
  for (const selected& s : found.kept) made.push_back(s.key);
  return made;
}

}  // namespace

TEST_CASE("without options every key is kept as it is") {
  CHECK(selection::compile({})->keeps_everything());
  CHECK(selection().keeps_everything());
  CHECK(kept({}, {"b", "a"}) == keys{"b", "a"});
}

TEST_CASE("only and skip match whole keys") {
  const keys names{"model.w", "model.w2", "x.model.w", "model.b"};
  CHECK(kept({.only = {R"(model\.w)"}}, names) == keys{"model.w"});
  CHECK(kept({.only = {R"(model\..*)"}, .skip = {".*2", ".*b"}}, names) == keys{"model.w"});
  CHECK(kept({.only = {"model.w|model.b", "x.*"}}, names) == keys{"model.w", "x.model.w", "model.b"});
}

TEST_CASE("keys that are not UTF-8 are matched byte by byte, and a dot is any character") {
  const keys names{"a\xFF", "a\xC3\xA9", "a\n"};
  CHECK(kept({.only = {"a."}}, names) == names);
  CHECK(kept({.only = {"a\xC3\xA9"}}, names) == keys{"a\xC3\xA9"});
  CHECK(kept({.only = {"a\\xFF"}}, names) == keys{"a\xFF"});
  CHECK(kept({.rename = {"a(.)=\\1"}}, {"a\xFF"}) == keys{"\xFF"});
}

TEST_CASE("renames are applied in order, split at the last equals sign, with groups") {
  CHECK(kept({.rename = {R"((.*)\.weight=\1.w)", R"(net\.(\d+)\.(.*)=layer.\2.\1)"}},
             {"net.3.weight", "net.4.bias", "other"}) == keys{"layer.w.3", "layer.bias.4", "other"});
  CHECK(kept({.rename = {"a=b=c"}}, {"a=b"}) == keys{"c"});
  CHECK(kept({.rename = {"x="}}, {"x"}) == keys{""});
}

TEST_CASE("a prefix is stripped before renames") {
  CHECK(kept({.strip_prefix = "module.", .rename = {"w=v"}}, {"module.w", "w2", "module.module.w"}) ==
        keys{"v", "w2", "module.w"});
}

TEST_CASE("two keys that meet after renaming are an error that names both") {
  const auto found = select_from({.rename = {"[ab]=c"}}, tensors({"a", "b"}));
  REQUIRE(found.errors.size() == 1);
  CHECK(found.errors[0].code == errc::invalid_argument);
  CHECK(to_string(found.errors[0]) == "c: a and b would both be called c");
}

TEST_CASE("a rule that matches nothing is an error unless that is allowed") {
  selection_options options{
      .only = {".*", "nothing"}, .skip = {"no"}, .strip_prefix = "pre", .rename = {"q=r"}, .dtype = {"z=float16"}};
  const auto found = select_from(options, tensors({"a"}));
  std::vector<std::string> texts;
  for (const error& e : found.errors) texts.push_back(e.message);
  CHECK(texts == std::vector<std::string>{"--only 'nothing' matches no key", "--skip 'no' matches no key",
                                          "--strip-prefix 'pre' matches no key", "--rename 'q=r' matches no key",
                                          "--dtype 'z=float16' matches no key"});
  options.allow_unused = true;
  CHECK(select_from(options, tensors({"a"})).errors.empty());
}

TEST_CASE("a plain dtype casts floating tensors only, a pattern casts what it names, the first wins") {
  const std::vector<selectable> given{{"f", dtype::float32, true},   {"h", dtype::float16, true},
                                      {"i", dtype::int64, true},     {"q", dtype::float8_e4m3fn, true},
                                      {"c", dtype::complex64, true}, {"d", dtype::float64, true},
                                      {"o", dtype::undefined, false}};
  const auto types = [&](std::vector<std::string> rules) {
    const auto found = select_from({.dtype = std::move(rules)}, given);
    CHECK(found.errors.empty());
    std::vector<dtype> made;
    for (const selected& s : found.kept) made.push_back(s.type);
    return made;
  };
  CHECK(types({"bfloat16"}) == std::vector<dtype>{dtype::bfloat16, dtype::bfloat16, dtype::int64, dtype::float8_e4m3fn,
                                                  dtype::complex64, dtype::bfloat16, dtype::undefined});
  CHECK(types({"[iq]=float32", "d=float64", "half"}) ==
        std::vector<dtype>{dtype::float16, dtype::float16, dtype::float32, dtype::float32, dtype::complex64,
                           dtype::float64, dtype::undefined});
}

TEST_CASE("a cast that does not exist is an error with the key") {
  const auto found = select_from({.dtype = {"w=float32"}}, tensors({"w"}, dtype::float4_e2m1fn_x2));
  REQUIRE(found.errors.size() == 1);
  CHECK(found.errors[0].code == errc::invalid_argument);
  CHECK(to_string(found.errors[0]) == "w: float4_e2m1fn_x2 cannot be converted to float32");
}

TEST_CASE("bad options are refused with the reason") {
  const auto message = [](const selection_options& options) {
    const auto compiled = selection::compile(options);
    REQUIRE_FALSE(compiled);
    CHECK(compiled.error().code == errc::invalid_argument);
    return compiled.error().message;
  };
  CHECK(message({.only = {"a("}}) == "--only 'a(': missing ): a(");
  CHECK(message({.skip = {"*"}}).starts_with("--skip '*': no argument for repetition"));
  CHECK(message({.rename = {"abc"}}) == "--rename 'abc' is not RE=REPLACEMENT");
  CHECK(message({.rename = {"a=\\1"}}).find("requests 1 matches") != std::string::npos);
  CHECK(message({.dtype = {"floaty"}}) == "--dtype 'floaty': no dtype is called floaty");
  CHECK(message({.dtype = {"w="}}).find("no dtype is called") != std::string::npos);
}

TEST_CASE("an expression that would explode elsewhere is linear here") {
  CHECK(select_from({.only = {"(a*)*b"}, .allow_unused = true}, tensors({std::string(100000, 'a')})).excluded == 1);
}

TEST_CASE("optimizer state is left out on demand") {
  CHECK(kept({.no_optimizer = true}, {"model.w", "optim.state.w.exp_avg", "optim.param_groups.0.lr", "epoch"}) ==
        keys{"model.w", "epoch"});
}
