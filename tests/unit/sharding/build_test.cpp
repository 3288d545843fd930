// SPDX-License-Identifier: Apache-2.0
// Tests metadata of a rank and of the whole tensor, and recalculated offsets. Compares them with PyTorch's answers
// (golden/seeds/sharded_utils.json), and random layouts with an array of cells. Also tests error texts.
// tests/data/differences/sharded_utils.json lists the differences.
#include <algorithm>
#include <answers.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <differences.hpp>
#include <golden.hpp>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "fake_tensor.hpp"
#include "random_shards.hpp"
#include "shard_cells.hpp"
import shardmesh.sharding;
import shardmesh.test.shards;

using namespace shardmesh;
using nlohmann::json;

namespace {

constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

using golden::refused;
using golden::to_extents;
using golden::to_shards;
using shards::at;

json spelled(const result<sharded_tensor_metadata>& found) {
  return found ? answers::metadata(*found) : golden::refusal(found.error());
}

shard<fake_tensor> held(const shard_metadata& metadata, tensor_properties properties = {}) {
  return shard<fake_tensor>::make(fake_tensor::make(metadata.sizes, properties), metadata).value();
}

sharded_tensor_metadata of(std::vector<shard_metadata> shards, const extents& size, tensor_properties properties = {}) {
  return {std::move(shards), size, properties};
}

using gathered = std::vector<std::optional<sharded_tensor_metadata>>;

}  // namespace

TEST_CASE("grids of shards have PyTorch's metadata on every rank and in all", "[sharded_utils]") {
  golden::differences differences("sharded_utils", "grids");
  const json& cases = golden::file("seeds/sharded_utils.json").at("grids");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const json& c = cases[i];
    INFO(c["note"] << " " << c["shape"] << " " << c["shards"]);
    const auto world = rank_group::world(c["world"]);
    const extents size = to_extents(c["shape"]);
    const tensor_properties properties{.type = parse_dtype(c["dtype"].get<std::string>()).value(),
                                       .requires_grad = c["requires_grad"].get<bool>()};
    gathered all;
    std::vector<shard_cells::shard> cells;
    json ours{{"build_metadata", json::array()}};
    for (std::int32_t rank = 0; rank < world.size(); ++rank) {
      INFO("rank " << rank);
      std::vector<shard<fake_tensor>> local;
      for (const json& s : c["shards"])
        if (s[0] == rank) local.push_back(held(at(rank, to_extents(s[1]), to_extents(s[2])), properties));
      const auto mine = build_metadata_from_local_shards(local, size, rank, world);
      ours["build_metadata"].push_back(spelled(mine));
      all.push_back(mine ? std::optional(*mine) : std::nullopt);
    }
    for (const json& s : c["shards"]) cells.push_back({s[1], s[2]});
    const auto whole = build_global_metadata(all);
    // The rule: valid if every cell is held once and there is a shard.
    REQUIRE(whole.has_value() == (shard_cells::look(c["shape"], cells).ok() && !cells.empty()));
    ours["build_global"] = spelled(whole);
    if (whole && refused(c["build_global"])) CHECK(shard_cells::overlapping_pairs(cells) == 0);
    // The spec that init_from_local_shards infers in PyTorch.
    ours["init"] = ours["build_global"];
    if (whole) ours["init"] = {{"spec", answers::spec(infer_sharding_spec_from_shards_metadata(whole->shards))}};
    json theirs;
    for (const auto& [field, answer] : ours.items()) theirs[field] = c[field];
    const bool has_empty = std::any_of(cells.begin(), cells.end(), shard_cells::is_empty);
    differences.compare(std::to_string(i), theirs, ours,
                        size.rank() == 0 ? "scalars"
                        : has_empty      ? "empty shards"
                                         : "refusals");
  }
  differences.finish();
}

TEST_CASE("recalculated offsets are PyTorch's where shards are listed in rank order, and right otherwise",
          "[sharded_utils]") {
  golden::differences differences("sharded_utils", "recalc");
  const json& cases = golden::file("seeds/sharded_utils.json").at("recalc");
  for (std::size_t k = 0; k < cases.size(); ++k) {
    const json& c = cases[k];
    INFO(c.dump());
    const auto shards = to_shards(c["shards"]);
    const auto dim = c["dim"].get<std::int32_t>();
    const auto plain = [](const result<sharded_tensor_metadata>& found) -> json {
      if (!found) return golden::refusal(found.error());
      return {{"size", golden::to_json(found->size)}, {"shards", answers::shards(found->shards)}};
    };
    const auto found = recalc_global_sharded_tensor_metadata(of(shards, to_extents(c["size"])), dim);
    json ours{{"result", plain(found)}, {"global_recalc", nullptr}};
    // PyTorch's own judgement of its answer: whether it tiles, and whether shards follow rank order. Both hold for the
    // right answer.
    if (found) ours["result"]["valid"] = ours["result"]["rank_order_ok"] = true;
    if (dim == 0 && c["kind"] != "no_placement") {
      gathered all{std::nullopt};
      for (const shard_metadata& s : shards) {
        all.push_back(of({s}, to_extents(c["size"])));
        all.emplace_back();
      }
      const auto whole = build_global_metadata(all, {.recalculate = true});
      if (found) CHECK(whole.value().shards == found->shards);
      ours["global_recalc"] = plain(whole);
    }
    differences.compare(std::to_string(k), {{"result", c["result"]}, {"global_recalc", c["global_recalc"]}}, ours,
                        c["kind"].get<std::string>());
    // The rules: the dimension exists, every shard has a rank, and all other dimensions are equal.
    const auto rank = static_cast<std::int32_t>(shards[0].sizes.rank());
    bool right = dim >= -rank && dim < rank;
    const auto cut = static_cast<std::size_t>(dim < 0 ? dim + rank : dim);
    for (const shard_metadata& s : shards) {
      right = right && s.rank();
      for (std::size_t d = 0; right && d < s.sizes.rank(); ++d) right = d == cut || s.sizes[d] == shards[0].sizes[d];
    }
    REQUIRE(found.has_value() == right);
    if (!found) continue;
    // Shards follow each other in rank order, then list order; nothing else changes.
    std::int64_t begin = 0;
    for (std::int32_t owner = 0; owner < 32; ++owner)
      for (std::size_t i = 0; i < shards.size(); ++i) {
        if (shards[i].rank() != owner) continue;
        extents offsets = extents::filled(shards[i].sizes.rank(), 0);
        offsets[cut] = begin;
        begin += shards[i].sizes[cut];
        CHECK(found->shards[i] == shard_metadata{offsets, shards[i].sizes, shards[i].placement});
      }
    extents size = shards[0].sizes;
    size[cut] = begin;
    CHECK(found->size == size);
    CHECK(check_tensor(found->shards, found->size));
  }
  differences.finish();
}

TEST_CASE("recalculation along any dimension of random shards makes up a tensor") {
  const auto seed = random_shards::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (int run = 0; run < random_shards::runs(3000); ++run) {
    const auto rank = static_cast<std::size_t>(1 + random() % 4);
    const std::size_t cut = random() % rank;
    extents sizes;
    for (std::size_t d = 0; d < rank; ++d) sizes.push_back(random_shards::below(random, 4));
    std::vector<shard_metadata> shards;
    for (std::int64_t left = random_shards::below(random, 9); left >= 0; --left) {
      extents offsets;
      for (std::size_t d = 0; d < rank; ++d) offsets.push_back(random_shards::below(random, 9));
      sizes[cut] = random_shards::below(random, 4);
      shards.push_back(at(static_cast<std::int32_t>(random_shards::below(random, 5)), offsets, sizes));
    }
    const auto dim = static_cast<std::int32_t>(cut) - (random() % 2 == 0 ? static_cast<std::int32_t>(rank) : 0);
    const auto found = recalc_global_sharded_tensor_metadata(of(shards, {}), dim).value();
    std::vector<shard_cells::shard> cells;
    std::map<std::int32_t, std::int64_t> reached;  // the end of each rank's last shard
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const shard_metadata& s = found.shards[i];
      cells.push_back({{s.offsets.begin(), s.offsets.end()}, {s.sizes.begin(), s.sizes.end()}});
      REQUIRE(s.sizes == shards[i].sizes);
      REQUIRE(s.placement == shards[i].placement);
      REQUIRE(s.offsets[cut] >= reached[*s.rank()]);
      reached[*s.rank()] = s.offsets[cut] + s.sizes[cut];
    }
    for (std::int32_t r = 1; r < 5; ++r)  // later ranks begin after earlier ones have ended
      for (const shard_metadata& s : found.shards)
        if (s.rank() == r)
          for (std::int32_t earlier = 0; earlier < r; ++earlier)
            if (reached.contains(earlier)) REQUIRE(s.offsets[cut] >= reached[earlier]);
    REQUIRE(shard_cells::look({found.size.begin(), found.size.end()}, cells).ok());
  }
}

TEST_CASE("what cannot be recalculated is named with ranks, sizes and dimension") {
  const auto texts = [](const std::vector<shard_metadata>& shards, std::int32_t dim) {
    return to_string(recalc_global_sharded_tensor_metadata(of(shards, {0, 4}), dim).error());
  };
  CHECK(texts({at(0, {0, 0}, {2, 4}), at(3, {0, 0}, {2, 5})}, 0) ==
        "shard 1 differs from shard 0 in dimension 1, which is not the one that is cut (ranks 0, 3): expected [2, 4], "
        "found [2, 5]");
  CHECK(texts({at(0, {0, 0}, {2, 4}), at(3, {0}, {2})}, 0) ==
        "shard 1 has a different number of dimensions than shard 0 (ranks 0, 3): expected [2, 4], found [2]");
  CHECK(texts({at(0, {0, 0}, {2, 4})}, 2) ==
        "a tensor of 2 dimensions cannot be cut along dimension 2: expected -2 to 1, found 2");
  CHECK(texts({at(0, {0, 0}, {huge, 0}), at(1, {0, 0}, {1, 0})}, 0) ==
        "the shards' sizes in dimension 0 do not add up in 64 bits (rank 1): expected a sum below 2^63, found "
        "9223372036854775807 + 1");
  CHECK(texts({at(0, {0, 0}, {-1, 0})}, 0) ==
        "shard 0 has a negative size in dimension 0 (rank 0): expected at least 0, found -1");
  CHECK(recalc_global_sharded_tensor_metadata(of({}, {7, 4}), 0).value().size == extents{0, 4});
  CHECK(!recalc_global_sharded_tensor_metadata(of({at(0, {}, {})}, {}), 0));
}

TEST_CASE("random layouts on several ranks are combined exactly when they make up the tensor") {
  const auto seed = random_shards::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (int run = 0; run < random_shards::runs(3000); ++run) {
    auto drawn = random_shards::draw(random, 5);
    if (random() % 2 == 0) random_shards::damage(random, drawn);
    const auto group = rank_group::make({12, 3, 7, 0, 4, 9}).value();
    gathered all(6);
    std::vector<shard_metadata> in_order;
    for (std::int32_t r = 0; r < 6; ++r)
      for (std::size_t i = 0; i < drawn.shards.size(); ++i) {
        if (drawn.owners[i] != r) continue;
        const auto& s = drawn.shards[i];
        auto& mine = all[static_cast<std::size_t>(r)];
        if (!mine) mine = of({}, extents(drawn.size));
        mine->shards.push_back(at(group.global(r), extents(s.offsets), extents(s.sizes)));
        in_order.push_back(mine->shards.back());
      }
    const auto whole = build_global_metadata(all, {.group = group, .global_size = extents(drawn.size)});
    INFO("run " << run);
    REQUIRE(whole.has_value() == shard_cells::look(drawn.size, drawn.shards).ok());
    if (whole) REQUIRE(whole->shards == in_order);
    if (whole) REQUIRE(distribution_of(*whole, group));
  }
}

TEST_CASE("a rank's problems are all there, each with its shard, rank and box") {
  const auto group = rank_group::make({4, 9}).value();
  tensor_properties other{.type = dtype::int8, .requires_grad = true, .pin_memory = true};
  const std::vector<shard<fake_tensor>> shards{held(at(9, {0}, {2})), held(at(4, {2}, {2}), other)};
  std::vector<std::string> texts;
  for (const error& e : local_shard_problems(std::span(shards), 1, group)) texts.push_back(to_string(e));
  CHECK(texts ==
        std::vector<std::string>{
            "local shard 1: its placement is not on this rank in [2:4) (rank 9): expected rank:9, found rank:4/cpu",
            "local shard 1: Local shards' tensor dtype property need to be the same on rank:9! Found one local shard "
            "tensor dtype=torch.float32, the other local shard tensor dtype=torch.int8. in [2:4) (rank 9): expected "
            "torch.float32, found torch.int8",
            "local shard 1: Local shards' tensor requires_grad property need to be the same on rank:9! Found one local "
            "shard tensor requires_grad=False, the other local shard tensor requires_grad=True. in [2:4) (rank 9): "
            "expected False, found True",
            "local shard 1: Local shards' tensor pin_memory property need to be the same on rank:9! Found one local "
            "shard tensor pin_memory=False, the other local shard tensor pin_memory=True. in [2:4) (rank 9): expected "
            "False, found True"});
  const auto built = build_metadata_from_local_shards(shards, {4}, 1, group);
  REQUIRE(!built);
  CHECK(to_string(built.error()) == texts[0] + "; and 3 more problems");
  CHECK(to_string(build_metadata_from_local_shards(shards, {4}, 2, group).error()) ==
        "this rank is not in the group: expected 0 to 1, found 2");
  CHECK(build_metadata_from_local_shards(std::vector{shards[0]}, {huge, 2}, 1, group).error().code == errc::overflow);
}

TEST_CASE("all properties are compared between ranks, layout and memory format too") {
  const tensor_properties other{.type = dtype::int8,
                                .storage = tensor_storage::jagged,
                                .requires_grad = true,
                                .format = memory_format::channels_last,
                                .pin_memory = true};
  const gathered all{of({at(0, {0}, {2})}, {4}), std::nullopt, of({at(2, {2}, {2})}, {5}, other)};
  std::vector<std::string> texts;
  for (const error& e : global_metadata_problems(all)) texts.push_back(e.message);
  const auto text = [](const std::string& what, const std::string& a, const std::string& b) {
    return "ShardedTensor " + what + " property does not match from different ranks! Found " + what + "=" + a +
           " on rank:0, and " + what + "=" + b + " on rank:2.";
  };
  CHECK(texts == std::vector<std::string>{
                     text("global_size", "[4]", "[5]"), text("dtype", "torch.float32", "torch.int8"),
                     text("layout", "torch.strided", "torch.jagged"), text("requires_grad", "False", "True"),
                     text("memory_format", "torch.contiguous_format", "torch.channels_last"),
                     text("pin_memory", "False", "True")});
  CHECK(to_string(build_global_metadata(all).error()).ends_with("; and 5 more problems"));
  const auto group = rank_group::make({8, 0, 3}).value();
  CHECK(to_string(global_metadata_problems(all, {.group = group})[0]).find("global rank 2 does not exist") !=
        std::string::npos);
}

TEST_CASE("an empty tensor may have no shards when its size is known") {
  const gathered none(3);
  const auto unknown = build_global_metadata(none);
  REQUIRE(!unknown);
  CHECK(
      to_string(unknown.error()) ==
      "no rank has a shard of the tensor: expected at least one, found none on 3 ranks; an empty tensor without shards "
      "needs its size");
  const auto empty = build_global_metadata(none, {.global_size = extents{0, 3}, .properties = {.type = dtype::int8}});
  REQUIRE(empty);
  CHECK(empty->size == extents{0, 3});
  CHECK(empty->properties.type == dtype::int8);
  const auto full = build_global_metadata(none, {.global_size = extents{2, 3}});
  REQUIRE(!full);
  CHECK(to_string(full.error()) == "cells are held by no rank in [0:2, 0:3)");
}
