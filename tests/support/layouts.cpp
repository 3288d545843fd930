// SPDX-License-Identifier: Apache-2.0
// Implements shardmesh.test.layouts.
module;
#include <cstddef>
#include <cstdint>
#include <golden.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

module shardmesh.test.layouts;

import shardmesh.layout;

using namespace shardmesh;
using nlohmann::json;

namespace golden {

placement to_placement(const json& spelled) {
  const auto type = spelled.at("type").get<std::string>();
  if (type == "Partial") return placement::partial(parse_reduce_op(spelled.value("reduce_op", "sum")).value());
  if (type == "Replicate") return placement::replicate();
  const auto dim = spelled.at("dim").get<std::int32_t>();
  if (type == "Shard") return placement::shard(dim);
  return placement::strided_shard(dim, spelled.at("split_factor").get<std::int64_t>());
}

placement short_placement(const std::string& spelled) {
  if (spelled == "R") return placement::replicate();
  if (spelled == "P") return placement::partial(reduce_op::sum);
  if (!spelled.starts_with("SS")) return placement::shard(std::stoi(spelled.substr(1)));
  const std::size_t colon = spelled.find(':');
  return placement::strided_shard(std::stoi(spelled.substr(2, colon - 2)), std::stoi(spelled.substr(colon + 1)));
}

std::vector<placement> to_placements(const json& list) {
  std::vector<placement> made;
  for (const json& p : list) made.push_back(to_placement(p));
  return made;
}

layout to_layout(const json& mesh, const json& shape, const json& placements) {
  return layout::make(device_mesh::make(to_extents(mesh)).value(), to_placements(placements), to_extents(shape))
      .value();
}

}  // namespace golden

namespace fragments {

std::vector<fragment> all_of(const distribution& whole) {
  std::vector<fragment> all;
  whole.for_each_owner(
      [&](owner_id owner) { whole.fragments_of(owner, [&](const fragment& f) { return all.push_back(f), true; }); });
  return all;
}

}  // namespace fragments
