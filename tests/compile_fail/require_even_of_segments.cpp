// SPDX-License-Identifier: Apache-2.0
// `require_even` names one next larger size, and each segment would need its own.
// expect: error: static assertion failed.*require_even does not take placement::shard_segments
import shardmesh.layout;

using namespace shardmesh;
using fused =
    require_even<static_layout<static_extents{2}, static_extents{8}, placement::shard_segments(0, {4, 2, 2})>>;
static_assert(fused::size() == 2);
