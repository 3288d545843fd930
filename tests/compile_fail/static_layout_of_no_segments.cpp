// SPDX-License-Identifier: Apache-2.0
// A dimension that is cut by segments has at least one.
// expect: error: static assertion failed.*a dimension has 1 to 16 segments
import shardmesh.layout;

using namespace shardmesh;
using fused = static_layout<static_extents{2}, static_extents{0}, placement::shard_segments(0, {})>;
static_assert(fused::size() == 2);
