// SPDX-License-Identifier: Apache-2.0
// Terms need a reduction.
// expect: error: static assertion failed.*a partial placement needs a reduction
import shardmesh.layout;

using namespace shardmesh;
using terms = static_layout<static_extents{2}, static_extents{4}, placement::partial(reduce_op::none)>;
static_assert(terms::size() == 2);
