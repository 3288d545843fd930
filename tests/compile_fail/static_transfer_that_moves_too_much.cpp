// SPDX-License-Identifier: Apache-2.0
// A byte budget is a static_assert; the compiler prints both sides.
// expect: error: static assertion failed.*gathers too much.*768 <= 512
import shardmesh.transfer;

using namespace shardmesh;
using rows = static_layout<static_extents{4}, static_extents{8, 8}, placement::shard(0)>;
using all = static_layout<static_extents{4}, static_extents{8, 8}, placement::replicate()>;
static_assert(static_transfer<rows, all>::bytes_moved <= 512, "gathers too much");
