// SPDX-License-Identifier: Apache-2.0
// A mesh cannot have 17 dimensions.
// expect: error: static assertion failed.*a mesh has at most 16 dimensions
import shardmesh.layout;

using namespace shardmesh;
using deep = static_layout<static_extents{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, static_extents{4}>;
static_assert(deep::rank == 1);
