// SPDX-License-Identifier: Apache-2.0
// A strided shard has pieces.
// expect: error: static assertion failed.*a split factor is at least 1
import shardmesh.layout;

using namespace shardmesh;
using pieceless = static_layout<static_extents{2}, static_extents{4}, placement::strided_shard(0, 0)>;
static_assert(pieceless::size() == 2);
