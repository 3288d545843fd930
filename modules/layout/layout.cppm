// SPDX-License-Identifier: Apache-2.0
// shardmesh.layout: which piece of which tensor lives where: meshes, placements, layouts, and what all of them become,
// a distribution. Not here: memory addresses (core's tensor_view), movement (transfer).
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

// A distribution is known by its digest; how one is made is nothing that users of layouts need.
export namespace shardmesh {
using shardmesh::digest128;
using shardmesh::to_hex;
}  // namespace shardmesh
