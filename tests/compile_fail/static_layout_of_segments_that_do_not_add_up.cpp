// SPDX-License-Identifier: Apache-2.0
// The segments of a dimension add up to its size.
// expect: error: static assertion failed.*segments add up to the size of their dimension
import shardmesh.layout;

using namespace shardmesh;
using fused = static_layout<static_extents{2}, static_extents{8}, placement::shard_segments(0, {4, 2})>;
static_assert(fused::size() == 2);
