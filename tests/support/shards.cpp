// SPDX-License-Identifier: Apache-2.0
// Implements shardmesh.test.shards.
module;
#include <cstdint>
#include <golden.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

module shardmesh.test.shards;

import shardmesh.sharding;

using namespace shardmesh;
using nlohmann::json;

namespace golden {

shard_metadata to_shard(const json& spelled) {
  shard_metadata made{to_extents(spelled["offsets"]), to_extents(spelled["sizes"]), std::nullopt};
  if (!spelled["placement"].is_null())
    made.placement = parse_remote_device(spelled["placement"].get<std::string>()).value();
  return made;
}

std::vector<shard_metadata> to_shards(const json& list) {
  std::vector<shard_metadata> made;
  for (const json& s : list) made.push_back(to_shard(s));
  return made;
}

}  // namespace golden

namespace shards {

shard_metadata at(std::int32_t rank, const extents& offsets, const extents& sizes) {
  return {offsets, sizes, remote_device{rank, "", {}}};
}

}  // namespace shards
