// SPDX-License-Identifier: Apache-2.0
// Tests refusals of flat parameters, their texts, and corner cases that the golden data lacks. Golden data is in
// golden_flat_test.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>
import shardmesh.fsdp;

using namespace shardmesh;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string error_of(std::vector<parameter_info> parameters, std::vector<shared_parameter_info> shared = {},
                     const flat_parameter_options& options = {.group_size = 2}) {
  const auto made = flat_parameter::make(std::move(parameters), std::move(shared), options);
  return made ? "" : to_string(made.error());
}

}  // namespace

TEST_CASE("a flat parameter that cannot be names what is wrong") {
  CHECK_THAT(error_of({{"a", {2}, {}}, {"b", {2}, {}, dtype::float64}}),
             ContainsSubstring("b: ") && ContainsSubstring("float32") && ContainsSubstring("float64"));
  CHECK_THAT(error_of({{"a", {2}, {}}, {"a", {3}, {}}}),
             ContainsSubstring("a: ") && ContainsSubstring("the same name"));
  CHECK_THAT(error_of({{"a", {4, 5}, {6, 1}}}), ContainsSubstring("a: ") && ContainsSubstring("[6, 1]"));
  CHECK_THAT(error_of({{"a", {4, 5}, {1}}}), ContainsSubstring("as many strides"));
  CHECK_THAT(error_of({{"a", {-1}, {}}}), ContainsSubstring("a: "));
  CHECK_THAT(error_of({{"a", {2}, {}}}, {{"b", "c"}}), ContainsSubstring("b: ") && ContainsSubstring("c"));
  CHECK_THAT(error_of({{"a", {2}, {}}}, {{"a", "a"}}), ContainsSubstring("the same name"));
  CHECK_THAT(error_of({{"a", {2}, {}, dtype::float4_e2m1fn}}), ContainsSubstring("whole bytes"));
  CHECK_THAT(error_of({{"a", {2}, {}}}, {}, {.group_size = 0}), ContainsSubstring("at least one rank"));
  CHECK_THAT(error_of({{"a", {2}, {}}}, {}, {.alignment = -4}), ContainsSubstring("-4"));
}

TEST_CASE("sizes beyond 64 bits are an error, not a wrap") {
  const std::int64_t half = std::int64_t{1} << 62;
  CHECK_THAT(error_of({{"a", {half}, {}}, {"b", {half}, {}}}),
             ContainsSubstring("b: ") && ContainsSubstring("64 bits"));
  CHECK_THAT(error_of({{"a", {half, 4}, {}}}), ContainsSubstring("a: "));
  // The padding of the last rank does not fit.
  CHECK_THAT(error_of({{"a", {std::numeric_limits<std::int64_t>::max()}, {}}}), ContainsSubstring("64 bits"));
  CHECK(flat_parameter::make({{"a", {std::numeric_limits<std::int64_t>::max()}, {}}}));
}

TEST_CASE("scalars and parameters without elements are ordinary") {
  const auto flat =
      flat_parameter::make({{"s", {}, {}}, {"e", {0, 3}, {}}, {"w", {3}, {}}}, {}, {.group_size = 2}).value();
  CHECK(flat.unsharded_numel() == 4);
  CHECK(flat.sharded_numel() == 2);
  CHECK(flat.shard_info(0, 0) == shard_parameter_info{true, 0, 1, 0, 0});
  // An empty parameter between two elements of a shard counts as in the shard, as in PyTorch.
  CHECK(flat.shard_info(0, 1) == shard_parameter_info{true, 1, 0, 0, -1});
  CHECK_FALSE(flat.shard_info(1, 1).in_shard);
  CHECK(flat.shard_info(1, 2) == shard_parameter_info{true, 0, 2, 1, 2});
  CHECK(held_boxes(flat, 1, 0).empty());
  CHECK(held_boxes(flat, 0, 0) == std::vector{flat_box{box{}, 0}});
}

TEST_CASE("a flat parameter without elements has empty shards") {
  const auto flat = flat_parameter::make({{"e", {0, 3}, {}}}, {}, {.group_size = 3}).value();
  CHECK(flat.sharded_numel() == 0);
  CHECK(flat.padded_numel() == 0);
  CHECK_FALSE(flat.shard_info(0, 0).in_shard);
  CHECK(flat_parameter().unsharded_numel() == 0);
  CHECK(flat_parameter().type() == dtype::undefined);
}

TEST_CASE("padding between parameters holds 42 and padding at the end 0") {
  // Aligned: a _ _ _ | b b b b | b _ (divisible by two)   Not aligned: a b b | b b b
  const auto aligned =
      flat_parameter::make({{"a", {1}, {}}, {"b", {5}, {}}}, {}, {.group_size = 2, .alignment = 4}).value();
  CHECK(aligned.unsharded_numel() == 10);
  std::vector<float> shard(5, 7.0F);
  const auto view = [&](std::int64_t size) {
    return tensor_view{reinterpret_cast<std::byte*>(shard.data()), dtype::float32, {}, {size}, {1}};
  };
  REQUIRE(aligned.fill_padding(0, view(5)));
  CHECK(shard == std::vector<float>{7, 42, 42, 42, 7});
  shard.assign(5, 7.0F);
  REQUIRE(aligned.fill_padding(1, view(5)));
  CHECK(shard == std::vector<float>{7, 7, 7, 7, 42});
  const auto plain = flat_parameter::make({{"a", {1}, {}}, {"b", {8}, {}}}, {}, {.group_size = 2}).value();
  shard.assign(5, 7.0F);
  REQUIRE(plain.fill_padding(1, view(5)));
  CHECK(shard == std::vector<float>{7, 7, 7, 7, 0});
  const auto wrong = plain.fill_padding(1, view(4));
  REQUIRE_FALSE(wrong);
  CHECK_THAT(to_string(wrong.error()),
             ContainsSubstring("[5]") && ContainsSubstring("[4]") && ContainsSubstring("rank 1"));
}

TEST_CASE("alignment is sixteen bytes") {
  CHECK(alignment_of(dtype::float32) == 4);
  CHECK(alignment_of(dtype::bfloat16) == 8);
  CHECK(alignment_of(dtype::float64) == 2);
  CHECK(alignment_of(dtype::uint8) == 16);
  CHECK(alignment_of(dtype::undefined) == 0);
}

TEST_CASE("shared names find the parameter they share") {
  const auto flat = flat_parameter::make({{"a", {2}, {}}, {"b", {2}, {}}}, {{"c", "b"}}, {.group_size = 2}).value();
  CHECK(flat.find("c") == std::optional<std::size_t>(1));
  CHECK(flat.find("a") == std::optional<std::size_t>(0));
  CHECK_FALSE(flat.find("d"));
}

TEST_CASE("shard groups know replicas") {
  const auto mesh = device_mesh::make(extents{2, 3}).value();
  const auto group = shard_group::along(mesh, 1, 7).value();
  CHECK(group.size() == 3);
  CHECK(group.ranks() == 7);
  CHECK(group.position(4) == std::optional<std::int32_t>(1));
  CHECK_FALSE(group.position(6));
  CHECK(std::vector<std::int32_t>(group.holders(2).begin(), group.holders(2).end()) == std::vector<std::int32_t>{2, 5});
  CHECK(group.replica_of(4) == std::vector<std::int32_t>{3, 4, 5});
  CHECK(group.replica_of(6).empty());
  CHECK(shard_group::world(3).replica_of(1) == std::vector<std::int32_t>{0, 1, 2});
  CHECK(shard_group() == shard_group::world(1));
}

TEST_CASE("shard groups that make no sense are refused") {
  CHECK_THAT(to_string(shard_group::make({0, 2, 2}).error()), ContainsSubstring("position 1"));
  CHECK_THAT(to_string(shard_group::make({0, -2}).error()), ContainsSubstring("-2") && ContainsSubstring("rank 1"));
  CHECK_THAT(to_string(shard_group::make({0, 9}).error()), ContainsSubstring("9"));
  CHECK_THAT(to_string(shard_group::make({-1, -1}).error()), ContainsSubstring("at least one"));
  CHECK_THAT(to_string(shard_group::make({}).error()), ContainsSubstring("at least one"));
  const auto mesh = device_mesh::make(extents{2, 2}).value();
  CHECK_THAT(to_string(shard_group::along(mesh, 2, 4).error()), ContainsSubstring("no such dimension"));
  CHECK_THAT(to_string(shard_group::along(mesh, 0, 3).error()), ContainsSubstring("beyond"));
}
