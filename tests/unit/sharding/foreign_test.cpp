// SPDX-License-Identifier: Apache-2.0
// Tests shards and metadata of another framework's types: every function gives the same results and errors as for ours.
// The test of each function compares the results for ours with cells and PyTorch.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fake_tensor.hpp"
#include "foreign_shards.hpp"
#include "random_shards.hpp"
import shardmesh.sharding;
import shardmesh.test.shards;

using namespace shardmesh;

namespace {

using shards::at;

extents numbers(const shard_cells::numbers& list) {
  return extents(list);
}

// A result as text, whether it is a value or an error.
template <class T>
std::string said(const result<T>& answer) {
  if (!answer) return "error: " + to_string(answer.error());
  if constexpr (std::is_void_v<T>)
    return "well";
  else
    return to_string(*answer);
}

std::string said(const result<sharded_tensor_metadata>& answer) {
  if (!answer) return "error: " + to_string(answer.error());
  std::string text = to_string(*answer) + " " + to_string(answer->properties);
  for (const shard_metadata& one : answer->shards) text += "; " + to_string(one);
  return text;
}

std::vector<std::string> texts(const std::vector<error>& problems) {
  std::vector<std::string> all;
  for (const error& one : problems) all.push_back(to_string(one));
  return all;
}

struct drawn {
  std::vector<shard_metadata> ours;
  extents size;
};

drawn draw(std::mt19937_64& random) {
  auto cells = random_shards::draw(random);
  if (random() % 2 == 0) random_shards::damage(random, cells);
  drawn made{{}, numbers(cells.size)};
  for (std::size_t i = 0; i < cells.shards.size(); ++i) {
    shard_metadata one = at(cells.owners[i], numbers(cells.shards[i].offsets), numbers(cells.shards[i].sizes));
    if (random() % 16 == 0) one.placement.reset();
    made.ours.push_back(one);
  }
  return made;
}

foreign::held_piece held(const foreign::piece& place, const extents& sizes, dtype type = dtype::int64) {
  const auto strides = contiguous_strides(sizes);
  return {place,
          std::make_shared<std::vector<std::int64_t>>(static_cast<std::size_t>(numel(sizes))),
          {sizes.begin(), sizes.end()},
          {strides.begin(), strides.end()},
          type,
          nullptr};
}

}  // namespace

TEST_CASE("random shards of another framework are validated, recalculated and distributed as ours") {
  const std::uint64_t seed = random_shards::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  int refused = 0;
  for (int run = 0, runs = random_shards::runs(2000); run < runs; ++run) {
    const auto [ours, size] = draw(random);
    const std::vector<foreign::piece> theirs = foreign::pieces_of(ours);
    INFO("run " << run);
    const cover_report wanted = check_shards(ours, size), found = check_shards(theirs, size);
    REQUIRE(found.problems == wanted.problems);
    CHECK(found.total == wanted.total);
    for (const cover_problem& p : wanted.problems) CHECK(describe(p, theirs) == describe(p, ours));
    CHECK(said(check_tensor(theirs, size)) == said(check_tensor(ours, size)));
    CHECK(said(validate_non_overlapping_shards_metadata(theirs)) ==
          said(validate_non_overlapping_shards_metadata(ours)));
    CHECK(to_string(infer_sharding_spec_from_shards_metadata(theirs)) ==
          to_string(infer_sharding_spec_from_shards_metadata(ours)));
    const sharded_tensor_metadata whole{ours, size, {}};
    const foreign::tensor_facts facts = foreign::facts_of(whole);
    const auto dim = static_cast<std::int32_t>(random() % 3) - 1;
    CHECK(said(recalc_global_sharded_tensor_metadata(facts, dim)) ==
          said(recalc_global_sharded_tensor_metadata(whole, dim)));
    const auto a = distribution_of(facts, rank_group::world(6)), b = distribution_of(whole, rank_group::world(6));
    REQUIRE(a.has_value() == b.has_value());
    if (a)
      CHECK(*a == *b);
    else
      CHECK(to_string(a.error()) == to_string(b.error()));
    refused += wanted.ok() ? 0 : 1;
  }
  CHECK(refused > 0);
}

TEST_CASE("metadata is built from another framework's shards, and refused, as from ours") {
  const auto group = rank_group::make({4, 7}).value();
  const auto placed = [](const extents& offsets, const extents& sizes, std::int32_t rank) {
    return shard_metadata{offsets, sizes, remote_device{rank, "", {}}};
  };
  struct example {
    std::vector<shard_metadata> places;
    std::vector<extents> tensors;
    std::vector<dtype> types;
    const char* says;
  };
  const example examples[] = {
      {{placed({0, 0}, {2, 3}, 7), placed({2, 0}, {1, 3}, 7)},
       {{2, 3}, {1, 3}},
       {dtype::int64, dtype::int64},
       "[4, 3]"},
      {{placed({0, 0}, {2, 3}, 7)}, {{2, 2}}, {dtype::int64}, "[0:2, 0:3) (rank 7)"},
      {{placed({0, 0}, {2, 3}, 4)}, {{2, 3}}, {dtype::int64}, "its placement is not on this rank"},
      {{placed({0, 0}, {2, 3}, 5)}, {{2, 3}}, {dtype::int64}, "global rank 5 does not exist"},
      {{placed({0, -1}, {2, 3}, 7)}, {{2, 3}}, {dtype::int64}, "do not form a box"},
      {{placed({0}, {2, 3}, 7)}, {{2, 3}}, {dtype::int64}, "do not form a box"},
      {{placed({0}, {2}, 7), placed({2}, {2}, 7)}, {{2}, {2}}, {dtype::int64, dtype::uint64}, "torch.uint64"},
      {{}, {}, {}, "no local shards"}};
  for (const example& e : examples) {
    INFO(e.says);
    std::vector<foreign::held_piece> theirs;
    std::vector<shard<fake_tensor>> ours;
    for (std::size_t i = 0; i < e.places.size(); ++i)
      theirs.push_back(held(foreign::piece_of(e.places[i]), e.tensors[i], e.types[i]));
    const auto built = build_metadata_from_local_shards(theirs, {4, 3}, 1, group);
    CHECK(said(built).find(e.says) != std::string::npos);
    CHECK(said(build_metadata_from_local_shards(std::deque(theirs.begin(), theirs.end()), {4, 3}, 1, group)) ==
          said(built));
    bool fits = true;  // our shards always fit their tensors
    for (std::size_t i = 0; i < e.places.size(); ++i) {
      auto one = shard<fake_tensor>::make(fake_tensor::make(e.tensors[i], {.type = e.types[i]}, 8), e.places[i]);
      fits = fits && one;
      if (one) ours.push_back(*std::move(one));
    }
    if (!fits) continue;
    CHECK(said(built) == said(build_metadata_from_local_shards(ours, {4, 3}, 1, group)));
    CHECK(texts(local_shard_problems(theirs, 1, group)) == texts(local_shard_problems(ours, 1, group)));
  }
}

TEST_CASE("a shard that holds a sharded tensor has its sizes and properties, of any type") {
  const shard_metadata whole{{0}, {4}, remote_device{0, "", {}}};
  foreign::held_piece outer{foreign::piece_of(whole), nullptr, {}, {}, dtype::int64, nullptr};
  outer.inside =
      std::make_shared<foreign::cut_tensor>(foreign::cut_tensor{{{}, {4}, {.type = dtype::float16}}, {}, {0}, 0});
  const std::vector shards{outer};
  const auto built = build_metadata_from_local_shards(shards, {4}, 0, rank_group::world(1));
  REQUIRE(built);
  CHECK(built->properties.type == dtype::float16);
  outer.inside->facts.shape = {3};
  CHECK(build_metadata_from_local_shards(shards, {4}, 0, rank_group::world(1)).error().code == errc::shape_mismatch);
  outer.inside->facts.shape.assign(17, 1);
  CHECK(build_metadata_from_local_shards(shards, {4}, 0, rank_group::world(1)).error().code == errc::shape_mismatch);
}

TEST_CASE("the metadata of all ranks is combined whatever its type, and the ranks that differ are named") {
  const auto rows = [](std::int32_t rank, std::int64_t begin, std::int64_t size, dtype type) {
    return sharded_tensor_metadata{{at(rank, {begin, 0}, {size, 2})}, {4, 2}, {.type = type}};
  };
  const std::vector<std::vector<std::optional<sharded_tensor_metadata>>> examples{
      {rows(0, 0, 3, dtype::int64), std::nullopt, rows(2, 3, 1, dtype::int64)},
      {rows(0, 0, 3, dtype::int64), rows(1, 3, 1, dtype::float32), std::nullopt},
      {rows(0, 0, 3, dtype::int64), rows(1, 2, 2, dtype::int64)},
      {rows(0, 0, 2, dtype::int64), rows(1, 3, 1, dtype::int64)},
      {std::nullopt, std::nullopt}};
  for (const auto& ours : examples) {
    std::vector<std::optional<foreign::tensor_facts>> theirs;
    std::vector<const foreign::tensor_facts*> pointers;
    for (const auto& one : ours)
      theirs.push_back(one ? std::optional(foreign::facts_of(*one)) : std::optional<foreign::tensor_facts>());
    for (const auto& one : theirs) pointers.push_back(one ? &*one : nullptr);
    const std::string wanted = said(build_global_metadata(ours));
    CHECK(said(build_global_metadata(theirs)) == wanted);
    CHECK(said(build_global_metadata(pointers)) == wanted);
    CHECK(texts(global_metadata_problems(theirs)) == texts(global_metadata_problems(ours)));
    CHECK(said(build_global_metadata(theirs, {.recalculate = true})) ==
          said(build_global_metadata(ours, {.recalculate = true})));
  }
  CHECK(said(build_global_metadata(examples[1])).find("on rank:0, and dtype=torch.float32 on rank:1") !=
        std::string::npos);
  const std::vector plain{foreign::facts_of(rows(0, 0, 4, dtype::int64))};
  CHECK(said(build_global_metadata(plain)) ==
        "[4, 2] int64 in 1 shard int64, strided, requires_grad false, "
        "contiguous_format, pin_memory false; [0:4, 0:2) on rank:0/cpu");
}

TEST_CASE("more dimensions than a tensor can have are an error of every function") {
  foreign::piece deep{std::vector<std::int64_t>(17, 0), std::vector<std::int32_t>(16, 1), 3, {}, {}};
  const std::vector pieces{deep};
  const foreign::tensor_facts odd_shard{pieces, {2}, {}};
  const foreign::tensor_facts odd_shape{{}, std::vector<std::int64_t>(17, 1), {}};
  const std::vector<std::optional<foreign::tensor_facts>> gathered{odd_shape}, with_shard{odd_shard};
  CHECK(check_shards(pieces, {2}).total == 2);  // the shard, and the gap that it leaves
  CHECK(describe(check_shards(pieces, {2}).problems[0], pieces).find("rank 3 has a shard with offsets [0, 0,") == 0);
  CHECK(check_tensor(pieces, {2}).error().code == errc::shape_mismatch);
  CHECK(check_tensor(pieces, {2}).error().ranks == std::vector<std::int32_t>{3});
  CHECK(recalc_global_sharded_tensor_metadata(odd_shard).error().code == errc::rank_too_large);
  CHECK(recalc_global_sharded_tensor_metadata(odd_shard).error().ranks == std::vector<std::int32_t>{3});
  CHECK(recalc_global_sharded_tensor_metadata(odd_shape).error().code == errc::rank_too_large);
  CHECK(build_global_metadata(gathered).error().code == errc::rank_too_large);
  CHECK(build_global_metadata(with_shard).error().code == errc::rank_too_large);
  CHECK(distribution_of(odd_shape, rank_group::world(1)).error().code == errc::rank_too_large);
  CHECK(build_metadata_from_local_shards(std::vector{held(deep, {2})}, {2}, 0, rank_group::make({3}).value())
            .error()
            .code == errc::shape_mismatch);
}
