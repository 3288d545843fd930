// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.replicas;

import shardmesh.layout;
import :box_layers;
import :described_part;

namespace shardmesh {
namespace {

bool are_disjoint(std::size_t rank, std::span<const merged_box> boxes) {
  std::vector<std::int64_t> offsets, sizes;
  const std::vector<owner_id> owners(boxes.size(), 0);
  for (const merged_box& one : boxes) {
    offsets.insert(offsets.end(), one.where.offsets.begin(), one.where.offsets.end());
    sizes.insert(sizes.end(), one.where.sizes.begin(), one.where.sizes.end());
  }
  return check_overlaps(rank, offsets, sizes, owners, 1).ok();
}

}  // namespace

std::vector<std::vector<std::size_t>> box_layers(std::size_t rank, std::span<const merged_box> boxes) {
  std::vector<std::vector<std::size_t>> layers(1);
  if (are_disjoint(rank, boxes)) {
    for (std::size_t i = 0; i < boxes.size(); ++i) layers.front().push_back(i);
    return layers;
  }
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    const auto has_room = [&](const std::vector<std::size_t>& layer) {
      return std::none_of(layer.begin(), layer.end(),
                          [&](std::size_t other) { return intersect(boxes[other].where, boxes[i].where).has_value(); });
    };
    const auto layer = std::find_if(layers.begin(), layers.end(), has_room);
    if (layer == layers.end())
      layers.push_back({i});
    else
      layer->push_back(i);
  }
  return layers;
}

}  // namespace shardmesh
