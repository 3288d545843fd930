// SPDX-License-Identifier: Apache-2.0
// Tests sharding specs: their arithmetic, other split rules, repeated owners, and refusals.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>
import shardmesh.sharding;

using namespace shardmesh;

namespace {

remote_device on(std::int32_t rank) {
  return {rank, "", {}};
}

constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

static_assert(split_size(10, 4) == 3);
static_assert(split_size(0, 4) == 0);
static_assert(split_size(huge, 2) == huge / 2 + 1);
static_assert(chunked_dim_size(10, 3, 3) == 1);
static_assert(chunked_dim_size(5, 2, 3) == 0);
static_assert(chunked_dim_size(0, 0, 3) == 0);
static_assert(chunked_dim_size(huge, huge / 2 + 1, 1) == huge / 2);
static_assert(chunked_dim_size(huge, huge / 2 + 1, huge) == 0);

}  // namespace

TEST_CASE("chunk sizes are torch.chunk's") {
  for (std::int64_t length = 0; length < 40; ++length)
    for (std::int64_t chunks = 1; chunks < 12; ++chunks) {
      const std::int64_t split = split_size(length, chunks);
      std::int64_t left = length;  // torch.chunk takes `split` from the rest
      for (std::int64_t i = 0; i < chunks; ++i) {
        const std::int64_t size = std::min(split, left);
        REQUIRE(chunked_dim_size(length, split, i) == size);
        left -= size;
      }
      REQUIRE(left == 0);
    }
}

TEST_CASE("a rank's chunk begins where the chunks before it end") {
  const chunk_sharding_spec spec{0, {on(3), on(1), on(7), on(1)}};
  CHECK(chunk_sharding_params(10, spec, 3).value() == index_range{0, 3});
  CHECK(chunk_sharding_params(10, spec, 1).value() == index_range{3, 3});  // the first of its two chunks
  CHECK(chunk_sharding_params(5, spec, 7).value() == index_range{4, 1});
  const auto absent = chunk_sharding_params(10, spec, 0);
  REQUIRE(!absent);
  CHECK(to_string(absent.error()) ==
        "no chunk of the spec is on this rank (rank 0): expected a rank of one of 4 placements, found 0");
  CHECK(!chunk_sharding_params(-1, spec, 3));
  CHECK(!chunk_sharding_params(10, chunk_sharding_spec{}, 0));
}

TEST_CASE("any split rule cuts, and one that does not fit is refused") {
  const chunk_sharding_spec balanced{0, {on(0), on(1), on(2), on(3)}, split_rule::balanced()};
  const auto made = build_metadata(balanced, {10}).value();
  CHECK(made.shards[1].where() == box{{3}, {3}});
  CHECK(made.shards[3].where() == box{{8}, {2}});
  const chunk_sharding_spec listed{-1, {on(0), on(1)}, split_rule::explicit_sizes({1, 4}).value()};
  CHECK(build_metadata(listed, {2, 5}).value().shards[1].where() == box{{0, 1}, {2, 4}});
  const auto wrong = build_metadata(listed, {2, 6});
  REQUIRE(!wrong);
  CHECK(to_string(wrong.error()) ==
        "the split rule does not fit the dimension: expected a rule for 6 over 2 placements, found one of 2 sizes");
  const chunk_sharding_spec one{0, {on(3)}, split_rule::explicit_sizes({4}).value()};
  CHECK(to_string(build_metadata(one, {6}).error()) ==
        "the split rule does not fit the dimension: expected a rule for 6 over 1 placement, found one of 1 size");
  CHECK(to_string(build_metadata(chunk_sharding_spec{}, {4}).error()) == "a chunk sharding spec has no placements");
  CHECK(build_metadata(listed, {huge, huge}).error().code == errc::overflow);
}

TEST_CASE("the text of a spec counts its chunks") {
  CHECK(to_string(chunk_sharding_spec{0, {on(3)}}) == "1 torch_chunk chunk along dimension 0 on rank:3/cpu");
  CHECK(to_string(chunk_sharding_spec{1, {on(3), on(0)}}) ==
        "2 torch_chunk chunks along dimension 1 on rank:3/cpu, rank:0/cpu");
}

TEST_CASE("a rank may hold several chunks, in slots of list order") {
  const auto group = rank_group::make({7, 3}).value();
  const auto d = distribution_of(chunk_sharding_spec{0, {on(3), on(7), on(3)}}, {5}, group).value();
  std::vector<std::pair<std::int32_t, box>> held;
  d.fragments_of(1, [&](const fragment& f) { return held.emplace_back(f.slot, f.where), true; });
  CHECK(held == std::vector<std::pair<std::int32_t, box>>{{0, {{0}, {2}}}, {1, {{4}, {1}}}});
  const auto outside = distribution_of(chunk_sharding_spec{0, {on(3), on(4)}}, {5}, group);
  REQUIRE(!outside);
  CHECK(to_string(outside.error()) ==
        "global rank 4 does not exist in the process group (rank 4): expected one of [7, 3], found 4");
  const auto unplaced = distribution_of(chunk_sharding_spec{0, {on(3), remote_device{}}}, {5}, group);
  REQUIRE(!unplaced);
  CHECK(to_string(unplaced.error()) == "placement 1 names no rank: expected rank:N/DEVICE, found cpu");
}

TEST_CASE("a chunk spec over a million ranks costs nothing until it is asked") {
  std::vector<remote_device> everywhere;
  for (std::int32_t r = 0; r < 1'000'000; ++r) everywhere.push_back(on(999'999 - r));
  const auto d =
      distribution_of(chunk_sharding_spec{0, everywhere}, {3'000'000, 1'000'000}, rank_group::world(1'000'000));
  REQUIRE(d);
  CHECK(d->is_complete());
  std::vector<box> held;
  d->fragments_of(0, [&](const fragment& f) { return held.push_back(f.where), true; });
  CHECK(held == std::vector<box>{{{2'999'997, 0}, {3, 1'000'000}}});
}

TEST_CASE("shards that differ in another dimension, or are not placed, are no chunks") {
  const std::vector<shard_metadata> uneven{{{0, 0}, {2, 4}, on(0)}, {{2, 0}, {2, 3}, on(1)}};
  CHECK(std::holds_alternative<enumerable_sharding_spec>(infer_sharding_spec_from_shards_metadata(uneven)));
  // The sizes and the offsets each fit chunks, but not together.
  const std::vector<shard_metadata> swapped{{{0}, {1}, on(0)}, {{2}, {2}, on(1)}};
  CHECK(std::holds_alternative<enumerable_sharding_spec>(infer_sharding_spec_from_shards_metadata(swapped)));
  const std::vector<shard_metadata> unplaced{{{0}, {2}, on(0)}, {{2}, {2}, std::nullopt}};
  CHECK(std::holds_alternative<enumerable_sharding_spec>(infer_sharding_spec_from_shards_metadata(unplaced)));
  // PyTorch takes [0, 2] in dimension 1 for dimension 0 again, because 0 means "not known yet" there.
  const std::vector<shard_metadata> both{{{0, 0}, {2, 2}, on(0)}, {{2, 0}, {2, 2}, on(1)}, {{0, 2}, {2, 2}, on(2)}};
  CHECK(std::holds_alternative<enumerable_sharding_spec>(infer_sharding_spec_from_shards_metadata(both)));
  CHECK(std::holds_alternative<enumerable_sharding_spec>(infer_sharding_spec_from_shards_metadata({})));
}

TEST_CASE("specs have a spelling") {
  CHECK(to_string(sharding_spec(chunk_sharding_spec{-1, {on(0), on(2)}, split_rule::balanced()})) ==
        "2 balanced chunks along dimension -1 on rank:0/cpu, rank:2/cpu");
  CHECK(to_string(sharding_spec(enumerable_sharding_spec{{{{0}, {2}, on(0)}, {{2}, {2}, std::nullopt}}})) ==
        "2 shards: [0:2) on rank:0/cpu, [2:4) on no device");
  CHECK(to_string(chunk_sharding_spec{0, std::vector<remote_device>(20, on(1))}).ends_with("rank:1/cpu, .."));
}
