// SPDX-License-Identifier: Apache-2.0
// shardmesh.test.shards: shard metadata, by hand and from golden JSON. Tests only.
module;
#include <cstdint>
#include <golden.hpp>
#include <nlohmann/json.hpp>
#include <vector>

export module shardmesh.test.shards;

import shardmesh.sharding;

export namespace golden {

/// Parses {"offsets", "sizes", "placement"} as written, without the checks of `shard_metadata::make`.
shardmesh::shard_metadata to_shard(const nlohmann::json& spelled);

std::vector<shardmesh::shard_metadata> to_shards(const nlohmann::json& list);

}  // namespace golden

export namespace shards {

/// A shard of a rank on the CPU.
shardmesh::shard_metadata at(std::int32_t rank, const shardmesh::extents& offsets, const shardmesh::extents& sizes);

}  // namespace shards
