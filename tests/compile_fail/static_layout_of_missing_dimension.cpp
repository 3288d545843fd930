// SPDX-License-Identifier: Apache-2.0
// A shard placement on a dimension that does not exist.
// expect: error: static assertion failed.*a placement names a dimension that the tensor lacks
import shardmesh.layout;

using namespace shardmesh;
using missing = static_layout<static_extents{2}, static_extents{4}, placement::shard(-2)>;
static_assert(missing::size() == 2);
