// SPDX-License-Identifier: Apache-2.0
// Every mesh dimension needs a placement.
// expect: error: static assertion failed.*one placement per mesh dimension
import shardmesh.layout;

using namespace shardmesh;
using half = static_layout<static_extents{2, 2}, static_extents{4}, placement::shard(0)>;
static_assert(half::size() == 4);
