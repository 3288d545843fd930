// SPDX-License-Identifier: Apache-2.0
// Tests the placement rules of `reshard`: which rule a key gets, dimensions that do not exist, and which parameter
// optimizer state follows.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <string>
#include <vector>
import shardmesh.checkpoint;

using namespace shardmesh;

namespace {

placement_rule rule(const char* text) {
  return parse_placement_rule(text).value();
}
std::string placed(const placement_resolution& r, std::size_t i) {
  return to_string(r.placements.at(i));
}
const device_mesh mesh = parse_mesh("dp=2,tp=4").value();

}  // namespace

TEST_CASE("a placement rule is split at its last equals sign") {
  const auto r = rule("a=b.*=S(0),R");
  CHECK(r.pattern.text() == "a=b.*");
  CHECK(r == placement_rule{key_pattern::compile("a=b.*").value(), {placement::shard(0), placement::replicate()}});
  CHECK(parse_placement_rules({"a=S(0)", "b=R"}).value() == std::vector<placement_rule>{rule("a=S(0)"), rule("b=R")});
  CHECK(parse_placement_rules({"a=S(0)", "(=R"}).error().message == "'(' is not a regular expression: missing ): (");
  CHECK(to_string(r.placements) == "S(0), R");
  for (const char* wrong : {"", "abc", "=R", "a=Q", "(=R"})
    CHECK(parse_placement_rule(wrong).error().code == errc::invalid_argument);
}

TEST_CASE("the first rule that matches the whole key wins, the others get the default") {
  const std::vector<keyed_shape> tensors{{"a.weight", {4, 4}}, {"a.weight2", {4, 4}}, {"b.weight", {4, 4}}};
  const std::vector<placement_rule> rules{rule(R"(a\.weight=S(0),R)"), rule(R"(.*\.weight=R,S(-1))")};
  const auto r = resolve_placements(tensors, mesh, rules);
  REQUIRE(r.ok());
  CHECK(placed(r, 0) == "S(0), R");
  CHECK(placed(r, 1) == "R, R");
  CHECK(placed(r, 2) == "R, S(1)");
}

TEST_CASE("a placement rule that matches nothing is an error unless that is allowed") {
  const std::vector<keyed_shape> tensors{{"a", {4}}};
  const std::vector<placement_rule> rules{rule("b=S(0),R"), rule("c=S(0),R")};
  const auto r = resolve_placements(tensors, mesh, rules);
  REQUIRE(r.errors.size() == 2);
  CHECK(to_string(r.errors[1]).find("'c'") != std::string::npos);
  CHECK(resolve_placements(tensors, mesh, rules, {.allow_unused = true}).ok());
}

TEST_CASE("a dimension that tensors lack is one error that names all of them, but scalars are replicated with a note") {
  const std::vector<keyed_shape> tensors{{"m.w", {4, 4}}, {"m.b", {4}}, {"m.c", {4}}, {"m.s", {}}};
  const std::vector<placement_rule> rules{rule("m.*=R,S(1)")};
  const auto r = resolve_placements(tensors, mesh, rules);
  REQUIRE(r.errors.size() == 1);
  CHECK(r.errors[0].code == errc::invalid_argument);
  CHECK(to_string(r.errors[0]).find("m.b, m.c") != std::string::npos);
  CHECK(to_string(r.errors[0]).find("m.s") == std::string::npos);
  REQUIRE(r.notes.size() == 1);
  CHECK(r.notes[0].find("m.s") != std::string::npos);
  CHECK(r.placements.empty());
}

TEST_CASE("segments that do not fit are one error that names the tensors, the sums, and the sizes") {
  const std::vector<keyed_shape> tensors{
      {"a.qkv", {96, 4}}, {"b.qkv", {100, 4}}, {"c.qkv", {}}, {"d.qkv", {3}}, {"opt.state.a.qkv.m", {96, 4}}};
  const std::vector<placement_rule> rules{rule(".*qkv=R,SG(-2,64:16:16)")};
  const auto fits = resolve_placements(std::vector{tensors[0], tensors[2], tensors[4]}, mesh, rules);
  REQUIRE(fits.ok());
  CHECK(placed(fits, 0) == "R, SG(0,64:16:16)");
  CHECK(placed(fits, 1) == "R, R");
  CHECK(placed(fits, 2) == "R, SG(0,64:16:16)");
  const auto r = resolve_placements(tensors, mesh, rules);
  REQUIRE(r.errors.size() == 2);
  CHECK(to_string(r.errors[0]) == "rule '.*qkv=R, SG(-2,64:16:16)' names a dimension that 1 tensor lacks: d.qkv");
  CHECK(r.errors[1].code == errc::invalid_argument);
  CHECK(to_string(r.errors[1]) ==
        "rule '.*qkv=R, SG(-2,64:16:16)' has segments that do not fit 1 tensor: b.qkv (the segments of SG(0,64:16:16) "
        "add "
        "up to 96, dimension 0 has size 100); give the size of each tensor that was fused into the dimension");
  CHECK(r.placements.empty());
  const auto by_default = resolve_placements(
      std::vector{tensors[3]}, mesh, {},
      {.default_placements = {placement::replicate(), placement::shard_segments(0, {INT64_MAX, INT64_MAX})}});
  REQUIRE(by_default.errors.size() == 1);
  CHECK(by_default.errors[0].message.find("the default 'R, SG(0,9223372036854775807:9223372036854775807)'") == 0);
  CHECK(by_default.errors[0].message.find("add up to more than 64 bits hold") != std::string::npos);
}

TEST_CASE("the number of placements must be the mesh's") {
  const std::vector<keyed_shape> tensors{{"a", {4}}};
  const std::vector<placement_rule> rules{rule("a=S(0)")};
  const auto r = resolve_placements(tensors, mesh, rules);
  REQUIRE(r.errors.size() == 1);
  CHECK(to_string(r.errors[0]).find("rule 'a'") != std::string::npos);
}

TEST_CASE("optimizer state of equal shape follows its parameter, also a prefixed one") {
  const std::vector<keyed_shape> tensors{{"model.layers.0.weight", {4, 4}},
                                         {"optim.state.layers.0.weight.exp_avg", {4, 4}},
                                         {"optim.state.layers.0.weight.step", {}},
                                         {"optim.state.layers.0.weight.row_sums", {4}},
                                         {"optim.state.layers.0.weight.exp_avg_sq", {4, 4}}};
  const std::vector<placement_rule> rules{rule("model.*=S(0),S(1)"), rule(".*exp_avg_sq=R,S(0)")};
  const auto r = resolve_placements(tensors, mesh, rules);
  REQUIRE(r.ok());
  CHECK(placed(r, 1) == "S(0), S(1)");
  CHECK(placed(r, 2) == "R, R");
  CHECK(placed(r, 3) == "R, R");
  CHECK(placed(r, 4) == "R, S(0)");
  const auto off = resolve_placements(tensors, mesh, rules, {.optimizer_follows = false});
  CHECK(placed(off, 1) == "R, R");
}

TEST_CASE("Megatron's optimizer state, whose keys end with the parameter, follows it") {
  const std::vector<keyed_shape> tensors{{"decoder.qkv.weight", {8, 8}},
                                         {"optimizer.state.exp_avg.decoder.qkv.weight", {8, 8}},
                                         {"chained_0.optimizer.state.fp32_param.decoder.qkv.weight", {8, 8}},
                                         {"optimizer.state.exp_avg.decoder.qkv.bias", {8, 8}},
                                         {"optim.state.w.exp_avg", {8, 8}},
                                         {"optim2.state.v.exp_avg", {8, 8}},
                                         {"optimizer.state.exp_avg_sq.decoder.qkv.weight", {64}}};
  const std::vector<placement_rule> rules{rule(R"(decoder\.qkv\.weight=S(1),S(0))"), rule(R"(optim2\..*=S(0),R)")};
  const auto r = resolve_placements(tensors, mesh, rules);
  REQUIRE(r.ok());
  CHECK(r.notes == std::vector<std::string>{"3 tensors match no placement rule and are replicated on all 8 ranks: "
                                            "optimizer.state.exp_avg.decoder.qkv.bias, optim.state.w.exp_avg, "
                                            "optimizer.state.exp_avg_sq.decoder.qkv.weight"});
  for (const std::size_t i : {0, 1, 2}) CHECK(placed(r, i) == "S(1), S(0)");
  CHECK(placed(r, 3) == "R, R");  // that parameter does not exist
  CHECK(placed(r, 4) == "R, R");  // state follows no other optimizer state
  CHECK(placed(r, 5) == "S(0), R");
  CHECK(placed(r, 6) == "R, R");  // another shape
}

TEST_CASE("optimizer state that could follow two parameters follows none unless they agree") {
  const std::vector<keyed_shape> tensors{
      {"model.w", {4}}, {"ema.w", {4}}, {"opt.state.w.m", {4}}, {"w.state.1.m", {4}}};
  const std::vector<placement_rule> one{rule("model.*=S(0),R")}, both{rule("(model|ema).*=S(0),R")};
  const auto split = resolve_placements(tensors, mesh, one);
  CHECK(placed(split, 2) == "R, R");
  REQUIRE(split.notes.size() == 2);
  CHECK(split.notes[0].find("opt.state.w.m") != std::string::npos);
  CHECK(placed(resolve_placements(tensors, mesh, both), 2) == "S(0), R");
}

TEST_CASE("an exact parameter name beats longer ones") {
  const std::vector<keyed_shape> tensors{{"w", {4}}, {"ema.w", {4}}, {"optim.state.w.m", {4}}};
  const std::vector<placement_rule> rules{rule("w=S(0),R")};
  CHECK(placed(resolve_placements(tensors, mesh, rules), 2) == "S(0), R");
}

TEST_CASE("tensors that are replicated because nobody placed them are named and counted, unless there is one rank") {
  const std::vector<keyed_shape> tensors{{"a", {4}}, {"b", {4, 4}}, {"s", {}}};
  const auto bare = resolve_placements(tensors, mesh, {});
  REQUIRE(bare.ok());
  CHECK(bare.notes ==
        std::vector<std::string>{"2 tensors match no placement rule and are replicated on all 8 ranks: a, b"});
  const std::vector<placement_rule> rules{rule("a=S(0),R")};
  CHECK(resolve_placements(tensors, mesh, rules).notes ==
        std::vector<std::string>{"1 tensor matches no placement rule and is replicated on all 8 ranks: b"});
  CHECK(resolve_placements(tensors, mesh, {}, {.default_placements = parse_placements("R,R").value()}).notes.empty());
  CHECK(resolve_placements(tensors, device_mesh::make({1}).value(), {}).notes.empty());
}
