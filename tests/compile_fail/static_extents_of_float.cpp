// SPDX-License-Identifier: Apache-2.0
// Sizes are integers: 2.5 is not truncated to 2.
// expect: error: .*(no viable constructor or deduction guide|constraints not satisfied|no matching)
import shardmesh.layout;

using namespace shardmesh;
using cut = static_layout<static_extents{2.5}, static_extents{4}, placement::shard(0)>;
static_assert(cut::size() == 2);
