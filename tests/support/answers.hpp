// SPDX-License-Identifier: Apache-2.0
// Our answers in the JSON form of the golden files: shards, metadata, specs, placements, and the elements that a tensor
// holds. Templates over module types, which the test imports. Comparison is in differences.hpp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <elements.hpp>
#include <golden.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

namespace answers {

using nlohmann::json;

/// A box as [offsets, sizes].
template <class Box>
json box(const Box& b) {
  return json::array({golden::to_json(b.offsets), golden::to_json(b.sizes)});
}

template <class Shard>
json shard(const Shard& m) {
  return {{"offsets", golden::to_json(m.offsets)},
          {"sizes", golden::to_json(m.sizes)},
          {"placement", m.placement ? json(to_string(*m.placement)) : json()}};
}

template <class Shards>
json shards(const Shards& all) {
  json made = json::array();
  for (const auto& m : all) made.push_back(shard(m));
  return made;
}

template <class Properties>
json properties(const Properties& p) {
  return {{"dtype", std::string(name(p.type))},
          {"layout", std::string(to_string(p.storage))},
          {"requires_grad", p.requires_grad},
          {"memory_format", std::string(to_string(p.format))},
          {"pin_memory", p.pin_memory}};
}

template <class Metadata>
json metadata(const Metadata& m) {
  return {{"size", golden::to_json(m.size)}, {"shards", shards(m.shards)}, {"properties", properties(m.properties)}};
}

/// A spec: a `std::variant` of a chunk and an enumerable spec.
template <class Spec>
json spec(const Spec& s) {
  return std::visit(
      [](const auto& one) -> json {
        if constexpr (requires { one.placements; }) {
          json places = json::array();
          for (const auto& p : one.placements) places.push_back(to_string(p));
          return {{"type", "ChunkShardingSpec"}, {"dim", one.dim}, {"placements", places}};
        } else {
          return {{"type", "EnumerableShardingSpec"}};
        }
      },
      s);
}

/// A placement as {"type", "dim", "split_factor"}, parsed from its text.
template <class Placement>
json placement(const Placement& p) {
  const std::string text = to_string(p);
  if (text.starts_with("SS")) return {{"type", "StridedShard"}, {"dim", p.dim}, {"split_factor", p.split_factor}};
  if (text.starts_with("S")) return {{"type", "Shard"}, {"dim", p.dim}};
  if (text == "R") return {{"type", "Replicate"}};
  return {{"type", "Partial"}, {"repr", "Partial(" + text.substr(2)}};
}

template <class Placements>
json placements(const Placements& all) {
  json made = json::array();
  for (const auto& p : all) made.push_back(placement(p));
  return made;
}

template <class Mesh>
json mesh(const Mesh& m) {
  json ranks = json::array(), names = json::array();
  for (std::int64_t p = 0; p < m.size(); ++p) ranks.push_back(m.rank_of_position(p));
  for (const auto& name : m.names()) names.push_back(std::string(name));
  return {{"shape", golden::to_json(m.sizes())}, {"ranks", ranks}, {"dim_names", names.empty() ? json() : names}};
}

/// The elements of a whole tensor that a local tensor of these sizes holds, given as row-major numbers. The answer is a
/// box if possible, else indices per dimension, else the numbers.
inline json holds(const elements::numbers& numbers, const shardmesh::extents& local, const shardmesh::extents& whole) {
  json made{{"shape", golden::to_json(local)}};
  if (numbers.empty()) return made;
  if (local.rank() != whole.rank()) return made["linear"] = numbers, made;
  // For each dimension: the global indices of the elements whose other local indices are 0.
  std::vector<elements::numbers> index(whole.rank());
  std::vector<std::int64_t> step(whole.rank(), 1), whole_step(whole.rank(), 1);
  for (std::size_t d = whole.rank(); d-- > 1;) {
    step[d - 1] = step[d] * local[d];
    whole_step[d - 1] = whole_step[d] * whole[d];
  }
  bool is_box = true;
  json offsets = json::array();
  for (std::size_t d = 0; d < whole.rank(); ++d) {
    for (std::int64_t i = 0; i < local[d]; ++i)
      index[d].push_back(numbers[static_cast<std::size_t>(i * step[d])] / whole_step[d] % whole[d]);
    for (std::size_t i = 1; i < index[d].size(); ++i)
      is_box &= index[d][i] == index[d][0] + static_cast<std::int64_t>(i);
    offsets.push_back(index[d][0]);
  }
  if (elements::at(index, whole) != numbers) return made["linear"] = numbers, made;
  if (is_box)
    made["box"] = json::array({offsets, golden::to_json(local)});
  else
    made["index"] = index;
  return made;
}

}  // namespace answers
