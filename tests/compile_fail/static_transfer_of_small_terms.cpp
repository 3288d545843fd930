// SPDX-License-Identifier: Apache-2.0
// 4-bit numbers cannot be summed.
// expect: error: static assertion failed.*terms of a type of less than a byte are not combined
import shardmesh.transfer;

using namespace shardmesh;
using terms = static_layout<static_extents{2}, static_extents{8}, placement::partial(reduce_op::sum)>;
using all = static_layout<static_extents{2}, static_extents{8}, placement::replicate()>;
static_assert(static_transfer<terms, all, dtype::float4_e2m1fn>::ranks == 2);
