// SPDX-License-Identifier: Apache-2.0
// Not exported: one sharding of metadata.pkl, and the fields that all of it is made of.
module shardmesh.torch_checkpointing:sharding_fields;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.pickle;
import shardmesh.tree;
import :metadata;

namespace shardmesh::torch_checkpointing {

// A list or tuple of integers; errc::bad_format names the field.
result<std::vector<std::int64_t>> integers_of(const pickle::value& list, std::string_view field);
// The same as sizes or offsets: not negative, of at most as many dimensions as there may be.
result<extents> extents_of(const pickle::value& list, std::string_view field);
// Ranks, ascending or not: none negative, each below `world_size`.
result<std::vector<std::int32_t>> ranks_of(const pickle::value& list, std::int32_t world_size, std::string_view field);

// Meshes that were read, by the dict that describes each: a checkpoint's tensors share few.
using known_meshes = std::unordered_map<std::uint64_t, device_mesh>;

// {"type": NAME, "data": {...}} without its ranks. Cost: O(its boxes), and the size of a mesh that is new.
result<sharding> sharding_of(const pickle::value& packed, std::int32_t world_size, known_meshes& meshes);

// A path spelled as JSON: ["encoder",0,"weight"].
result<path> path_of_json(std::string_view text);

}  // namespace shardmesh::torch_checkpointing
