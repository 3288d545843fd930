// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.mapping;

import shardmesh.layout;
import :element_pieces;
import :mapped_moves;
import :tied_targets;

namespace shardmesh {
namespace {

// The pairs of the targets that the convention ties, among those that are not made. `made_at` has numbers by keys.
std::vector<tied_copy> tied_pairs(std::span<const held_tensor> to, const mapping_rules& last, const model_sizes& sizes,
                                  const std::unordered_map<std::string, std::size_t>& made_at) {
  catalog targets;
  targets.tensors.reserve(to.size());
  for (const held_tensor& one : to) targets.tensors.push_back(entry_of(one.key, one.type, one.where.global_shape()));
  const auto bound = bind_mapping(last.inverse(), targets, sizes);
  if (!bound) return {};
  std::vector<tied_copy> found;
  for (const unused_tensor& one : bound->unused)
    if (one.same_as && !made_at.contains(to[one.source].key) && made_at.contains(to[*one.same_as].key))
      found.push_back({one.source, *one.same_as});
  return found;
}

bool has_whole_bytes(dtype type) {
  return bits(type) > 0 && bits(type) % 8 == 0;
}

}  // namespace

std::vector<tied_copy> add_tied_targets(std::vector<target_elements>& made, std::span<const held_tensor> to,
                                        std::span<const mapping_rules> mappings, const model_sizes& sizes) {
  std::unordered_map<std::string, std::size_t> made_at;
  for (std::size_t i = 0; i < made.size(); ++i) made_at.emplace(made[i].key, i);
  const auto is_made = [&](const held_tensor& one) { return made_at.contains(one.key); };
  if (mappings.empty() || std::all_of(to.begin(), to.end(), is_made)) return {};
  std::vector<tied_copy> copies;
  for (const tied_copy& one : tied_pairs(to, mappings.back(), sizes, made_at)) {
    const held_tensor &tied = to[one.tied], &partner = to[one.partner];
    if (has_whole_bytes(tied.type) && tied.where == partner.where) {
      copies.push_back(one);
      continue;
    }
    target_elements same = made[made_at.find(partner.key)->second];
    same.key = tied.key;
    made.push_back(std::move(same));
  }
  return copies;
}

}  // namespace shardmesh
