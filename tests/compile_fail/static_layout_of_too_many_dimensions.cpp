// SPDX-License-Identifier: Apache-2.0
// A tensor cannot have 17 dimensions.
// expect: error: static assertion failed.*a tensor has at most 16 dimensions
import shardmesh.layout;

using namespace shardmesh;
using deep = static_layout<static_extents{2}, static_extents{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
                           placement::replicate()>;
static_assert(deep::mesh_rank == 1);
