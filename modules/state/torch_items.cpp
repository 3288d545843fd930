// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.state;

namespace shardmesh::detail {

std::vector<torch_item> torch_items(const tree_spec& spec, std::span<const std::uint8_t> is_tensor) {
  const std::vector<std::uint8_t> whole = kept_whole(spec, is_tensor, key_policy::torch_dcp);
  const std::vector<std::size_t> parents = spec.parents();
  const auto nodes = spec.nodes();
  const auto keys = spec.keys();
  std::vector<std::uint8_t> is_entered(nodes.size(), 0);
  for (std::size_t node = nodes.size(); node-- > 0;)  // parents before children
    is_entered[node] = whole[node] == 0 && (parents[node] == node || is_entered[parents[node]] != 0);
  std::vector<torch_item> items;
  std::size_t leaf = 0;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    leaf += nodes[node].kind == node_kind::leaf ? 1 : 0;
    if (whole[node] == 0 || (parents[node] != node && is_entered[parents[node]] == 0)) continue;
    std::vector<path_key> reversed;
    for (std::size_t at = node; parents[at] != at; at = parents[at]) {
      const bool is_name = nodes[parents[at]].kind == node_kind::mapping && keys[at].is_index();
      reversed.push_back(is_name ? path_key(std::to_string(keys[at].index())) : keys[at]);
    }
    std::reverse(reversed.begin(), reversed.end());
    items.push_back({path(std::move(reversed)), node, leaf - static_cast<std::size_t>(nodes[node].leaves)});
  }
  return items;
}

}  // namespace shardmesh::detail
