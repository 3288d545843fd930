// SPDX-License-Identifier: Apache-2.0
// shardmesh.layout: the pieces of a tensor and the ranks that hold them, as meshes, placements, layouts, and
// distributions. Memory addresses are in core's `tensor_view`, and movement is in room transfer.
export module shardmesh.layout;

export import shardmesh.core;
import shardmesh.digest;

export import :cut;
export import :split_rule;
export import :flat_range;
export import :mesh;
export import :placement;
export import :layout_rules;
export import :tensor_layout;
export import :static_layout;
export import :product;
export import :distribution;
export import :cover;
export import :distributed;

// Digests identify distributions. Users of layouts do not need the functions that make digests.
export namespace shardmesh {
using shardmesh::digest128;
using shardmesh::to_hex;
}  // namespace shardmesh
