// SPDX-License-Identifier: Apache-2.0
// Tests casts: rules that match tensors of another kind, casts that lose values, and names that are not a dtype.
#include <catch2/catch_test_macros.hpp>
#include <shardmesh/dtype.hpp>

#include <string>
#include <utility>
#include <vector>

import shardmesh.checkpoint;

using namespace shardmesh;

namespace {

using texts = std::vector<std::string>;

// An FP8 model with tensors that must not be cast: a counter, a mask, and packed bytes.
const std::vector<selectable> model{{"w", dtype::float32, true},          {"v", dtype::float32, true},
                                    {"q", dtype::float8_e4m3fn, true},    {"step", dtype::int64, true},
                                    {"mask", dtype::boolean, true},       {"packed", dtype::uint8, true},
                                    {"spectrum", dtype::complex64, true}, {"epoch", dtype::undefined, false}};

selection_result cast(const texts& rules, bool allow_narrowing = false, bool allow_unused = false) {
  selection_options options{.allow_unused = allow_unused, .allow_narrowing = allow_narrowing};
  for (const std::string& rule : rules) options.cast.push_back(parse_cast_rule(rule).value());
  return select_keys(model, options);
}

texts lines(const std::vector<error>& errors) {
  texts made;
  for (const error& e : errors) made.push_back(to_string(e));
  return made;
}

std::string changed(const selection_result& chosen) {
  std::string text;
  for (const selected& one : chosen.kept)
    if (one.type != model[one.index].type) text += one.key + ":" + to_string(one.type) + " ";
  return text;
}

}  // namespace

TEST_CASE("a pattern of all keys casts floating tensors, FP8 too, and counts what it leaves") {
  const auto chosen = cast({".*=float32"});
  CHECK(chosen.errors.empty());
  CHECK(changed(chosen) == "q:float32 ");
  CHECK(chosen.notes == texts{"the cast '.*=float32' leaves 4 tensors as they are: bool (1), uint8 (1), int64 (1), "
                              "complex64 (1); '.*=uint8:float32' casts uint8"});
}

TEST_CASE("a cast to a smaller floating type is made, and a note counts the tensors") {
  const auto chosen = cast({"float16"});
  CHECK(chosen.errors.empty());
  CHECK(changed(chosen) == "w:float16 v:float16 ");
  CHECK(chosen.notes == texts{"2 tensors are cast from float32 to float16, which does not hold every value of "
                              "float32: w and 1 more; numbers beyond 65504 become infinity and are not counted"});
  CHECK(
      cast({"w=bfloat16"}).notes ==
      texts{"1 tensor is cast from float32 to bfloat16, which does not hold every value of float32: w; numbers beyond "
            "3.3895e+38 become infinity and are not counted"});
  CHECK(cast({"w=float8_e4m3fn"}).notes ==
        texts{"1 tensor is cast from float32 to float8_e4m3fn, which does not hold every value of float32: w; numbers "
              "beyond 448 become 448 and are not counted"});
  CHECK(cast({"w=float8_e5m2fnuz"}).notes ==
        texts{"1 tensor is cast from float32 to float8_e5m2fnuz, which does not hold every value of float32: w; "
              "numbers beyond 57344 become NaN and are not counted"});
  CHECK(cast({"float64"}).notes.empty());
}

TEST_CASE("a rule that matches tensors of other kinds alone is an error that says how they are named") {
  const auto chosen = cast({"step=float32"});
  CHECK(lines(chosen.errors) == texts{"cast 'step=float32' casts nothing: no tensor that it matches is floating: found "
                                      "int64 (1); 'step=int64:float32' casts int64; pass allow_unused to ignore this"});
  CHECK(changed(chosen).empty());
  const auto passed = cast({"step=float32"}, false, true);
  CHECK(passed.errors.empty());
  CHECK(passed.notes ==
        texts{"the cast 'step=float32' leaves 1 tensor as it is: int64 (1); 'step=int64:float32' casts int64"});
  CHECK(lines(cast({"w=int32"}).errors)
            .at(0)
            .starts_with("cast 'w=int32' casts nothing: no tensor that it matches is "
                         "integer: found float32 (1); 'w=float32:int32'"));
  CHECK(lines(cast({"step=int32:float64"}).errors)
            .at(0)
            .starts_with("cast 'step=int32:float64' casts nothing: no "
                         "tensor that it matches is int32: found int64"));
  CHECK(lines(cast({"int16:float64"}).errors) ==
        texts{"cast 'int16:float64' matches no key; pass allow_unused to ignore this"});
}

TEST_CASE("a rule that earlier rules leave nothing to cast is an error that names both") {
  CHECK(
      lines(cast({".*=float16", "w=float64"}).errors) ==
      texts{"cast 'w=float64' casts nothing: an earlier rule casts each tensor that it would cast: '.*=float16' casts "
            "w; give it before '.*=float16', or pass allow_unused to ignore this"});
  CHECK(lines(cast({"v=float64", "w=float16", "w|v=float64"}).errors) ==
        texts{"cast 'w|v=float64' casts nothing: an earlier rule casts each tensor that it would cast: 'w=float16' "
              "casts w; give it before 'w=float16', or pass allow_unused to ignore this"});
  // Tensors of other kinds that the later rule matches change nothing, and a dtype selects as a pattern does.
  CHECK(lines(cast({"float64", "w|step=float64"}).errors) ==
        texts{"cast 'w|step=float64' casts nothing: an earlier rule casts each tensor that it would cast: 'float64' "
              "casts w; give it before 'float64', or pass allow_unused to ignore this"});
  CHECK(lines(cast({"float64", "float32:bfloat16"}).errors) ==
        texts{"cast 'float32:bfloat16' casts nothing: an earlier rule casts each tensor that it would cast: 'float64' "
              "casts w; give it before 'float64', or pass allow_unused to ignore this"});
  for (const texts& rules : {texts{"w=float64", "w|v=float16"}, texts{"w|v=float64", "float16"}}) {
    INFO(rules.back());
    CHECK(cast(rules).errors.empty());
  }
  const auto passed = cast({".*=float64", "w=float16"}, false, true);
  CHECK(passed.errors.empty());
  CHECK(changed(passed) == "w:float64 v:float64 q:float64 ");
}

TEST_CASE("a cast that loses values of integers is refused with its key unless narrowing is allowed") {
  for (const auto& [rule, line] : std::vector<std::pair<std::string, std::string>>{
           {"int64:float32", "step: casting int64 to float32 loses values; pass allow_narrowing to cast it anyway"},
           {"step=int32", "step: casting int64 to int32 loses values; pass allow_narrowing to cast it anyway"},
           {"w=float32:int32", "w: casting float32 to int32 loses values; pass allow_narrowing to cast it anyway"},
           {"complex64:float32",
            "spectrum: casting complex64 to float32 loses values; pass allow_narrowing to cast it anyway"}}) {
    INFO(rule);
    const auto refused = cast({rule});
    CHECK(lines(refused.errors) == texts{line});
    CHECK(refused.errors.at(0).code == errc::narrowing);
    const auto allowed = cast({rule}, true);
    CHECK(allowed.errors.empty());
    CHECK(allowed.notes.size() == 1);
  }
  CHECK(cast({"uint8:float32", "bool:int64"}).errors.empty());
  CHECK(cast({"uint8:float32", "bool:int64"}).notes.empty());
  CHECK(changed(cast({"uint8:float32", "bool:int64"})) == "mask:int64 packed:float32 ");
}

TEST_CASE("many refused casts are named up to a limit and counted beyond it") {
  std::vector<std::string> names;
  for (int i = 0; i < 50; ++i) names.push_back("n" + std::to_string(i));
  std::vector<selectable> many;
  for (const std::string& name : names) many.push_back({name, dtype::int64, true});
  const auto refused = select_keys(many, {.cast = {parse_cast_rule("int32").value()}});
  REQUIRE(refused.errors.size() == 21);
  CHECK(refused.errors[19].key == "n19");
  CHECK(to_string(refused.errors[20]) == "casting int64 to int32 loses values of 30 more tensors");
}

TEST_CASE("a name that is no dtype is answered with the one that was meant") {
  for (const auto& [name, meant] : std::vector<std::pair<std::string, std::string>>{{"bf16", "bfloat16"},
                                                                                    {"BF16", "bfloat16"},
                                                                                    {"fp16", "float16"},
                                                                                    {"fp32", "float32"},
                                                                                    {"torch.bf16", "bfloat16"},
                                                                                    {"flaot32", "float32"},
                                                                                    {"Float32", "float32"},
                                                                                    {"i64", "int64"},
                                                                                    {"fp8", "float8_e4m3fn"}}) {
    INFO(name);
    const auto refused = parse_cast_rule("w=" + name);
    REQUIRE_FALSE(refused);
    CHECK(to_string(refused.error()) ==
          "'w=" + name + "': no dtype is called " + name + "; did you mean " + meant + "?");
  }
  CHECK(parse_cast_rule("w=half").value().type == dtype::float16);
  CHECK(parse_cast_rule("float").value().type == dtype::float32);
  CHECK(parse_cast_rule("w=fp9000:float32").error().message == "'w=fp9000:float32': no dtype is called fp9000");
  CHECK(parse_cast_rule("a=b=int64:float32").value().what->text() == "a=b");
  CHECK(to_string(parse_cast_rule("a=int64:float32").value()) == "a=int64:float32");
  CHECK(to_string(cast_rule{.what = key_pattern::exactly("a"), .type = dtype::float32, .from = dtype::int64}) ==
        "a=int64:float32");
}
