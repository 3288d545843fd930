// SPDX-License-Identifier: Apache-2.0
// The error for an uneven split names the size and the next larger even one.
// expect: error: static assertion failed.*the mesh does not divide a dimension of the tensor: pad it from the first of
// these sizes to the second.*10 == 12
import shardmesh.layout;

using namespace shardmesh;
using rows = require_even<static_layout<static_extents{4}, static_extents{10, 7}, placement::shard(0)>>;
static_assert(rows::size() == 4);
