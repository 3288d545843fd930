// SPDX-License-Identifier: Apache-2.0
// A transfer is for one tensor.
// expect: error: static assertion failed.*source and destination are different tensors: give both one shape
import shardmesh.transfer;

using namespace shardmesh;
using rows = static_layout<static_extents{4}, static_extents{8, 8}, placement::shard(0)>;
using columns = static_layout<static_extents{4}, static_extents{8, 4}, placement::shard(1)>;
static_assert(static_transfer<rows, columns>::ranks == 4);
