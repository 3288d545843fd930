// SPDX-License-Identifier: Apache-2.0
// The rules of layout::make hold at compile time.
// expect: error: static assertion failed.*these reductions of partial placements cannot be combined
import shardmesh.layout;

using namespace shardmesh;
using mixed = static_layout<static_extents{2, 2}, static_extents{4}, placement::partial(reduce_op::sum),
                            placement::partial(reduce_op::max)>;
static_assert(mixed::size() == 4);
