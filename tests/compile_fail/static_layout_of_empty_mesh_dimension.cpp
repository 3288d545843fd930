// SPDX-License-Identifier: Apache-2.0
// A mesh needs ranks, also at compile time.
// expect: error: static assertion failed.*a mesh dimension has at least one rank
import shardmesh.layout;

using namespace shardmesh;
using nobody = static_layout<static_extents{2, 0}, static_extents{4}, placement::replicate(), placement::shard(0)>;
static_assert(nobody::size() == 0);
