// SPDX-License-Identifier: Apache-2.0
// Tests how meshes, shapes, placements, and split rules are parsed, printed, and refused. golden_test.cpp tests what
// they hold.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>
import shardmesh.layout;

using namespace shardmesh;

namespace {
std::string mesh_error(const char* text) {
  const auto mesh = parse_mesh(text);
  REQUIRE(!mesh);
  return to_string(mesh.error());
}
bool names(const std::string& message, const char* what) {
  return message.find(what) != std::string::npos;
}
}  // namespace

TEST_CASE("a mesh is parsed with and without names") {
  const auto plain = parse_mesh(" 2 , 3 ").value();
  CHECK(plain.sizes() == extents{2, 3});
  CHECK(plain.names().empty());
  CHECK(plain.rank_at({1, 2}) == 5);
  CHECK(plain.coordinate_of(4).value() == extents{1, 1});
  CHECK(!plain.coordinate_of(6));
  CHECK(!plain.coordinate_of(-1));

  const auto named = parse_mesh("dp=2,tp=3").value();
  CHECK(named.dimension("tp") == 1U);
  CHECK(!named.dimension("pp"));
  CHECK(to_string(named) == "dp=2,tp=3");
  CHECK(parse_mesh(to_string(named)).value() == named);
}

TEST_CASE("a mesh that makes no sense is refused with the part that is wrong") {
  CHECK(names(mesh_error("2,0"), "'0'"));
  CHECK(names(mesh_error("2,-3"), "'-3'"));
  CHECK(names(mesh_error("dp=2,dp=3"), "'dp'"));
  CHECK(names(mesh_error("dp=2,3"), "all mesh dimensions or none"));
  CHECK(names(mesh_error("=2"), "empty name"));
  CHECK(names(mesh_error("2,x"), "'x'"));
  CHECK(names(mesh_error("2,,3"), "''"));
  CHECK(names(mesh_error(""), "empty"));
  CHECK(names(mesh_error("2,"), "''"));
  CHECK(names(mesh_error("99999999999999999999"), "99999999999999999999"));
  CHECK(parse_mesh("65536,65536").error().code == errc::overflow);
  CHECK(parse_mesh("9223372036854775807,9223372036854775807").error().code == errc::overflow);
  CHECK(parse_mesh("1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1").error().code == errc::rank_too_large);
  CHECK(parse_mesh("2147483647").has_value());
}

TEST_CASE("a mesh may number its ranks in any order") {
  const std::vector<std::int64_t> sizes{2, 2};
  const auto mesh = device_mesh::make(sizes, {}, {7, 1, 4, 0}).value();
  CHECK(mesh.rank_at({0, 0}) == 7);
  CHECK(mesh.coordinate_of(4).value() == extents{1, 0});
  CHECK(!mesh.coordinate_of(2));
  CHECK(mesh.rank_limit() == 8);
  CHECK(device_mesh::make(sizes, {}, {0, 1, 2, 3}).value() == device_mesh::make(sizes).value());
  CHECK(device_mesh::make(sizes, {}, {0, 1, 2, 2}).error().code == errc::invalid_argument);
  CHECK(device_mesh::make(sizes, {}, {0, 1, 2}).error().code == errc::invalid_argument);
  CHECK(device_mesh::make(sizes, {}, {0, 1, 2, -1}).error().code == errc::invalid_argument);

  const auto l = layout::make(mesh, {placement::shard(0), placement::shard(1)}, {4, 4}).value();
  const auto d = distribute(l).value();
  CHECK(d.owners() == 8);
  std::vector<owner_id> owners;
  d.overlapping({{0, 0}, {4, 4}}, [&](const fragment& f) { return owners.push_back(f.owner), true; });
  CHECK(owners == std::vector<owner_id>{0, 1, 4, 7});
  CHECK(l.boxes(0).at(0).where == box{{2, 2}, {2, 2}});
  CHECK(l.boxes(2).empty());
}

TEST_CASE("shapes are parsed, scalars too") {
  CHECK(parse_shape("10,7").value() == extents{10, 7});
  CHECK(parse_shape("[10, 7]").value() == extents{10, 7});
  CHECK(parse_shape("(10,)").value() == extents{10});
  CHECK(parse_shape("0").value() == extents{0});
  for (const char* scalar : {"[]", "()", "scalar", "[ ]"}) CHECK(parse_shape(scalar).value() == extents{});
  for (const char* wrong : {"", "10,,7", "a", "[10", "10]", "-1", "1.5", "(,)", "10,"}) {
    INFO(wrong);
    CHECK(parse_shape(wrong).error().code == errc::invalid_argument);
  }
  CHECK(parse_shape("9223372036854775807,2").error().code == errc::overflow);
  CHECK(parse_shape("9223372036854775808").error().code == errc::overflow);
  CHECK(parse_shape("9223372036854775807,2,0").has_value());
}

TEST_CASE("placements are parsed and printed") {
  const auto all = parse_placements("S(0), SS(-1, 2),R,P(sum), P, P(avg), SG( -2, 64 :16: 0 ),SG(0,3)").value();
  REQUIRE(all.size() == 8);
  CHECK(all[0] == placement::shard(0));
  CHECK(all[1] == placement::strided_shard(-1, 2));
  CHECK(all[2] == placement::replicate());
  CHECK(all[3] == placement::partial(reduce_op::sum));
  CHECK(all[4] == all[3]);
  CHECK(all[6] == placement::shard_segments(-2, {64, 16, 0}));
  CHECK(all[7] == placement::shard_segments(0, {3}));
  CHECK(to_string(all) == "S(0), SS(-1,2), R, P(sum), P(sum), P(avg), SG(-2,64:16:0), SG(0,3)");
  for (const char* wrong :
       {"", "S", "S()", "S(x)", "SS(0)", "SS(0,0)", "P(median)", "Q", "S(0", "S(0),", "S(99)", "P(none)"}) {
    INFO(wrong);
    CHECK(parse_placements(wrong).error().code == errc::invalid_argument);
  }
}

TEST_CASE("a placement of segments is refused with what is wrong") {
  for (const char* wrong :
       {"SG", "SG()", "SG(0)", "SG(0,)", "SG(0,:)", "SG(0,3:)", "SG(0,:3)", "SG(0,x)", "SG(0,-1:4)"}) {
    INFO(wrong);
    CHECK(parse_placements(wrong).error().code == errc::invalid_argument);
  }
  for (const char* wrong : {"SG(x,3)", "SG(99,3)", "SG(0,3", "SG(0,1.5:2)", "SG(0,3,4)", "SG(0,9223372036854775808)"}) {
    INFO(wrong);
    CHECK(parse_placements(wrong).error().code == errc::invalid_argument);
  }
  CHECK(parse_placements("SG(0,1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1)").value()[0].segments().size() == 16);
  CHECK(names(to_string(parse_placements("SG(0,4:-2)").error()), "must be a number of at least 0, not '-2'"));
  CHECK(names(to_string(parse_placements("SG(0,1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1)").error()), "more than 16 segments"));
}

TEST_CASE("a layout names what does not fit") {
  const auto mesh = parse_mesh("2,2").value();
  const auto code = [&](std::vector<placement> placements, const extents& shape, const split_rule& rule = {}) {
    return layout::make(mesh, std::move(placements), shape, rule).error().code;
  };
  CHECK(code({placement::shard(0)}, {4}) == errc::invalid_argument);
  CHECK(code({placement::shard(1), placement::replicate()}, {4}) == errc::out_of_bounds);
  CHECK(code({placement::shard(-2), placement::replicate()}, {4}) == errc::out_of_bounds);
  CHECK(code({placement::shard(0), placement::replicate()}, {}) == errc::out_of_bounds);
  CHECK(code({placement::partial(reduce_op::sum), placement::partial(reduce_op::max)}, {4}) == errc::mixed_partial);
  CHECK(code({placement::strided_shard(0, std::int64_t{1} << 40), placement::replicate()}, {std::int64_t{1} << 41}) ==
        errc::invalid_argument);
  CHECK(code({placement::shard(0), placement::replicate()}, {5}, split_rule::explicit_sizes({2, 2}).value()) ==
        errc::invalid_argument);
  const auto mixed =
      layout::make(mesh, {placement::partial(reduce_op::sum), placement::partial(reduce_op::avg)}, {4}).value();
  CHECK(mixed.reduction() == reduce_op::avg);
  CHECK(mixed.divisor() == 2);
  CHECK(layout::make(mesh, {placement::shard(-1), placement::shard(-2)}, {4, 6}).value().placements()[0] ==
        placement::shard(1));
}

TEST_CASE("split rules cut as they say") {
  const auto sizes = [](const split_rule& rule, std::int64_t length, std::int64_t parts) {
    std::vector<std::int64_t> made;
    for (std::int64_t i = 0; i < parts; ++i) made.push_back(rule.part(length, parts, i).size);
    return made;
  };
  using list = std::vector<std::int64_t>;
  CHECK(sizes(split_rule::torch_chunk(), 10, 4) == list{3, 3, 3, 1});
  CHECK(sizes(split_rule::torch_chunk(), 5, 4) == list{2, 2, 1, 0});
  CHECK(sizes(split_rule::torch_chunk(), 0, 3) == list{0, 0, 0});
  CHECK(sizes(split_rule::balanced(), 10, 4) == list{3, 3, 2, 2});
  CHECK(sizes(split_rule::balanced(), 2, 4) == list{1, 1, 0, 0});
  CHECK(sizes(split_rule::explicit_sizes({4, 0, 6}).value(), 10, 3) == list{4, 0, 6});
  CHECK(sizes(split_rule::weighted({1, 0, 2}).value(), 10, 3) == list{3, 0, 7});
  CHECK(split_rule::explicit_sizes({4, -1}).error().code == errc::invalid_argument);
  CHECK(split_rule::weighted({0, 0}).error().code == errc::invalid_argument);
  CHECK(split_rule::weighted({INT64_MAX, 1}).error().code == errc::overflow);
  // Nothing overflows near the end of 64 bits.
  CHECK(split_rule::torch_chunk().part(INT64_MAX, INT32_MAX, INT32_MAX - 1).begin <= INT64_MAX);
  CHECK(split_rule::weighted({1, 1}).value().part(INT64_MAX, 2, 1).begin == INT64_MAX / 2);
}

TEST_CASE("part_of finds the part that holds a position") {
  const std::vector<split_rule> rules{split_rule::torch_chunk(), split_rule::balanced(),
                                      split_rule::weighted({3, 0, 1, 7, 0}).value()};
  for (const split_rule& rule : rules)
    for (std::int64_t length : {1, 2, 4, 5, 7, 13, 29})
      for (std::int64_t position = 0; position < length; ++position) {
        const index_range part = rule.part(length, 5, rule.part_of(length, 5, position));
        CHECK((position >= part.begin && position < part.begin + part.size));
      }
}

TEST_CASE("split rules are parsed and printed") {
  for (const char* text : {"torch_chunk", "balanced", "sizes:3,3,4", "weights:1,2"})
    CHECK(to_string(parse_split_rule(text).value()) == text);
  for (const char* wrong : {"", "chunk", "sizes:", "sizes:a", "weights:0", "sizes:-1"})
    CHECK(parse_split_rule(wrong).error().code == errc::invalid_argument);
}

TEST_CASE("a mesh is made from sizes and names as they are written") {
  const auto mesh = device_mesh::make({2, 3}, {"dp", "tp"}).value();
  CHECK(mesh == device_mesh::make(extents{2, 3}, {"dp", "tp"}).value());
  CHECK(mesh.size() == 6);
  CHECK(device_mesh::make({4}).value().sizes() == extents{4});
  CHECK(device_mesh::make({2, 0}).error().code == errc::invalid_argument);
}
