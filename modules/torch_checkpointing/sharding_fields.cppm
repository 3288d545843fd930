// SPDX-License-Identifier: Apache-2.0
// Not exported: reads one sharding of metadata.pkl, and the basic fields of that file.
module shardmesh.torch_checkpointing:sharding_fields;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.pickle;
import shardmesh.tree;
import :metadata;

namespace shardmesh::torch_checkpointing {

// Reads a list or tuple of integers; errc::bad_format names the field.
result<std::vector<std::int64_t>> integers_of(const pickle::value& list, std::string_view field);
// Reads sizes or offsets in the same way: none is negative, and there are at most the supported number of dimensions.
result<extents> extents_of(const pickle::value& list, std::string_view field);
// Reads ranks in any order; each must be at least 0 and below `world_size`.
result<std::vector<std::int32_t>> ranks_of(const pickle::value& list, std::int32_t world_size, std::string_view field);

// Meshes that were already read, by the dict that describes each: a checkpoint's tensors share a few meshes.
using known_meshes = std::unordered_map<std::uint64_t, device_mesh>;

// Reads {"type": NAME, "data": {...}}; the caller sets `ranks`. Cost: O(its boxes), and the size of a mesh that is new.
result<sharding> sharding_of(const pickle::value& packed, std::int32_t world_size, known_meshes& meshes);

// Parses a path in JSON: ["encoder",0,"weight"].
result<path> path_of_json(std::string_view text);

}  // namespace shardmesh::torch_checkpointing
