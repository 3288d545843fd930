// SPDX-License-Identifier: Apache-2.0
// Ranks are numbered in 32 bits.
// expect: error: static assertion failed.*a mesh has at most 2.31 - 1 ranks
import shardmesh.layout;

using namespace shardmesh;
using crowd =
    static_layout<static_extents{65536, 65536}, static_extents{4}, placement::replicate(), placement::shard(0)>;
static_assert(crowd::rank == 1);
