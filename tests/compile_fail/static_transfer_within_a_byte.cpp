// SPDX-License-Identifier: Apache-2.0
// Elements of 4 bits are split only at whole bytes.
// expect: error: static assertion failed.*elements of less than a byte are cut inside a byte
import shardmesh.transfer;

using namespace shardmesh;
using rows = static_layout<static_extents{2}, static_extents{6}, placement::shard(0)>;
using all = static_layout<static_extents{2}, static_extents{6}, placement::replicate()>;
static_assert(static_transfer<rows, all, dtype::float4_e2m1fn>::ranks == 2);
