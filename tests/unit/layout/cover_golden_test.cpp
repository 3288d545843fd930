// SPDX-License-Identifier: Apache-2.0
// Compares check_boxes with PyTorch's verdicts on shards (golden/errors.json). It refuses exactly the shards that any
// of PyTorch's three functions refuses, except where pytorch-behaviour calls PyTorch wrong: empty shards and scalars
// overlap nothing.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <golden.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>
import shardmesh.layout;

using namespace shardmesh;
using nlohmann::json;

TEST_CASE("shards are refused when PyTorch refuses them, and only then", "[errors]") {
  const json& cases = golden::file("errors.json").at("cases");
  std::map<std::string, bool> is_refused;  // by input: whether any function refuses it
  std::map<std::string, bool> overlaps;    // whether the function that checks only overlaps refuses it
  for (const json& c : cases) {
    const auto function = c.at("function").get<std::string>();
    if (function != "validate_non_overlapping_shards_metadata" && function != "check_tensor" &&
        function != "dcp_validate_global_plan")
      continue;
    if (!c["input"].contains("tensor_dims")) continue;
    const bool refused = !c.at("exception").is_null() || !(c.at("result").is_null() || c["result"].empty());
    bool& known = is_refused[c["input"].dump()];
    known = known || refused;
    if (function[0] == 'v') overlaps[c["input"].dump()] = refused;
  }
  REQUIRE(is_refused.size() > 100);
  int compared = 0, empty = 0;
  for (const auto& [input, refused] : is_refused) {
    INFO(input);
    const json given = json::parse(input);
    extents shape;
    for (const json& n : given["tensor_dims"]) shape.push_back(n.get<std::int64_t>());
    std::vector<std::int64_t> offsets, sizes;
    std::vector<owner_id> owners;
    std::size_t rank = shape.rank();
    for (const json& shard : given["shards"]) {
      rank = shard["offsets"].size();
      for (const json& n : shard["offsets"]) offsets.push_back(n.get<std::int64_t>());
      for (const json& n : shard["sizes"]) sizes.push_back(n.get<std::int64_t>());
      owners.push_back(static_cast<owner_id>(owners.size()));
    }
    const bool only_empty = box::whole(shape).is_empty();  // PyTorch reports overlaps of such empty shards
    if (const auto known = overlaps.find(input); known != overlaps.end())
      CHECK(check_overlaps(rank, offsets, sizes, owners).ok() == (only_empty || !known->second));
    if (rank != shape.rank()) continue;  // flat arrays have one rank; module sharding tests these
    ++compared;
    const auto report = check_boxes(shape, offsets, sizes, owners, 100, owner_space::ranks, equal_boxes::overlap);
    if (only_empty && report.ok())
      ++empty;
    else
      CHECK(report.ok() == !refused);
  }
  CHECK(empty > 0);
  CHECK(compared > 80);
}
