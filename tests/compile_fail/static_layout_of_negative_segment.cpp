// SPDX-License-Identifier: Apache-2.0
// A segment has a size of at least 0.
// expect: error: static assertion failed.*the size of a segment is not negative
import shardmesh.layout;

using namespace shardmesh;
using fused = static_layout<static_extents{2}, static_extents{4}, placement::shard_segments(0, {5, -1})>;
static_assert(fused::size() == 2);
