// SPDX-License-Identifier: Apache-2.0
// A transfer's bytes need a dtype.
// expect: error: static assertion failed.*the dtype of a transfer is not undefined
import shardmesh.transfer;

using namespace shardmesh;
using rows = static_layout<static_extents{4}, static_extents{8}, placement::shard(0)>;
static_assert(static_transfer<rows, rows, dtype::undefined>::ranks == 4);
