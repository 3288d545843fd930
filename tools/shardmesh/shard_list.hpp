// SPDX-License-Identifier: Apache-2.0
// The valid shards of a tensor in a JSON file, and the problems of the invalid ones.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

import shardmesh;

namespace tool {

inline constexpr shardmesh::owner_id no_rank = -1;

struct shard_list {
  shardmesh::extents shape;
  std::vector<std::int64_t> offsets, sizes;  // of all shards, one after another
  std::vector<shardmesh::owner_id> owners;   // of each shard; no_rank: the placement names no rank
  std::vector<std::string> problems;         // the first hundred, escaped for a terminal
  std::int64_t problem_count = 0;

  void report(std::string line);
};

/// Parses {"size":[..],"shards":[{"offsets":[..],"sizes":[..],"placement":"rank:0/cpu"}]}; `name` is the file's name in
/// problems. Throws std::bad_alloc.
shard_list parse_shard_list(std::string_view text, std::string_view name);

}  // namespace tool
