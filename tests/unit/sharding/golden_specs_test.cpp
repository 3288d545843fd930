// SPDX-License-Identifier: Apache-2.0
// Compares sharding specs with PyTorch's answers (golden/chunk_specs.json): every field of every case.
// tests/data/differences/chunk_specs.json lists the differences.
#include <algorithm>
#include <answers.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <differences.hpp>
#include <golden.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>
import shardmesh.sharding;
import shardmesh.test.shards;

using namespace shardmesh;
using nlohmann::json;

namespace {

using golden::to_extents;
using golden::to_shards;

std::vector<remote_device> to_placements(const json& list) {
  std::vector<remote_device> made;
  for (const json& p : list) made.push_back(parse_remote_device(p.get<std::string>()).value());
  return made;
}

// The non-empty fragments, by owner.
std::vector<fragment> held(const distribution& d) {
  std::vector<fragment> all;
  for (owner_id o = 0; o < d.owners(); ++o)
    d.fragments_of(o, [&](const fragment& f) {
      if (!f.where.is_empty()) all.push_back(f);
      return true;
    });
  return all;
}

// Shards or a refusal in the golden file's form.
json answer_of(const result<sharded_tensor_metadata>& found) {
  if (!found) return {{"shards", nullptr}, {"exception", golden::refusal(found.error())["exception"]}};
  return {{"shards", answers::shards(found->shards)}, {"exception", nullptr}};
}

json answer_in(const json& c) {
  json made;
  for (const char* field : {"shards", "exception"}) made[field] = c.value(field, json());
  return made;
}

// Ranks 0 to 15 in order.
const rank_group world = rank_group::world(16);

}  // namespace

TEST_CASE("chunk specs cut as PyTorch's do, with empty chunks at the end instead of beyond it", "[chunk_specs]") {
  golden::differences differences("chunk_specs", "chunk");
  const json& cases = golden::file("chunk_specs.json").at("chunk");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const json& c = cases[i];
    INFO(c.dump());
    const sharding_spec spec = chunk_sharding_spec{c["dim"].get<std::int32_t>(), to_placements(c["placements"])};
    const extents size = to_extents(c["shape"]);
    const auto found = build_metadata(spec, size, {.type = dtype::int16});
    differences.compare(std::to_string(i), answer_in(c), answer_of(found), found ? "empty chunks" : "refusals");
    REQUIRE(found.has_value() == c["exception"].is_null());
    if (!found) {
      CHECK(found.error().code == errc::out_of_bounds);
      CHECK(found.error().message == "invalid sharding dimension " + std::to_string(c["dim"].get<int>()));
      CHECK(!distribution_of(spec, size, world));
      continue;
    }
    // The rule: an empty chunk that PyTorch puts beyond the end of the dimension moves to the end.
    auto expected = to_shards(c["shards"]);
    for (shard_metadata& s : expected)
      for (std::size_t d = 0; d < size.rank(); ++d) {
        if (s.offsets[d] <= size[d]) continue;
        REQUIRE(s.sizes[d] == 0);
        s.offsets[d] = size[d];
      }
    CHECK(found->shards == expected);
    CHECK(found->size == size);
    CHECK(found->properties.type == dtype::int16);
    CHECK(check_tensor(found->shards, size).has_value());
    CHECK(held(distribution_of(spec, size, world).value()) == held(distribution_of(*found, world).value()));
  }
  differences.finish();
}

TEST_CASE("specs are inferred as PyTorch infers them", "[chunk_specs]") {
  golden::differences differences("chunk_specs", "infer");
  const json& cases = golden::file("chunk_specs.json").at("infer");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const json& c = cases[i];
    INFO(c.dump());
    const auto shards = to_shards(c["shards"]);
    const auto found = infer_sharding_spec_from_shards_metadata(shards);
    differences.compare(std::to_string(i), {{"exception", c["exception"]}, {"result", c["result"]}},
                        {{"exception", nullptr}, {"result", answers::spec(found)}}, "specs");
    if (const auto* listed = std::get_if<enumerable_sharding_spec>(&found)) CHECK(listed->shards == shards);
  }
  differences.finish();
}

TEST_CASE("what a chunk spec makes is inferred as that spec again") {
  for (const json& c : golden::file("chunk_specs.json").at("chunk")) {
    if (!c["exception"].is_null()) continue;
    INFO(c.dump());
    const extents size = to_extents(c["shape"]);
    chunk_sharding_spec spec{c["dim"].get<std::int32_t>(), to_placements(c["placements"])};
    const auto shards = build_metadata(spec, size).value().shards;
    if (spec.dim < 0) spec.dim += static_cast<std::int32_t>(size.rank());
    const auto cut = static_cast<std::size_t>(spec.dim);
    const auto found = infer_sharding_spec_from_shards_metadata(shards);
    // A single shard, or shards that all begin at 0, do not determine the dimension.
    if (std::all_of(shards.begin(), shards.end(), [&](const shard_metadata& s) { return s.offsets[cut] == 0; }))
      CHECK(found == sharding_spec(enumerable_sharding_spec{shards}));
    else
      CHECK(found == sharding_spec(spec));
  }
}

TEST_CASE("listed shards are checked as PyTorch checks them", "[chunk_specs]") {
  golden::differences differences("chunk_specs", "enumerable");
  const json& cases = golden::file("chunk_specs.json").at("enumerable");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const json& c = cases[i];
    INFO(c.dump());
    enumerable_sharding_spec spec;
    std::int32_t rank = 0;
    for (const json& b : c["boxes"])
      spec.shards.push_back({to_extents(b[0]), to_extents(b[1]), remote_device{rank++, "", {}}});
    const extents size = to_extents(c["shape"]);
    const auto found = build_metadata(spec, size);
    differences.compare(std::to_string(i), answer_in(c), answer_of(found), "refusals");
    REQUIRE(found.has_value() == c["exception"].is_null());
    if (found) {
      CHECK(found->shards == to_shards(c["shards"]));
      continue;
    }
    const auto torch = c["exception"]["text"].get<std::string>();
    const auto has = [&](const char* part) { return torch.find(part) != std::string::npos; };
    // PyTorch compares volumes first; our error names the missing cells of the second of two shards.
    if (has("overlap")) CHECK(found.error().code == errc::overlap);
    if (has("exceeds")) CHECK(found.error().code == errc::out_of_bounds);
    if (has("Rank of tensor")) CHECK(found.error().code == errc::shape_mismatch);
    if (has("Total volume") || has("Empty shard list")) CHECK(found.error().code == errc::gap);
  }
  differences.finish();
}
