// SPDX-License-Identifier: Apache-2.0
// A tensor's sizes are also checked at compile time.
// expect: error: static assertion failed.*a size of a tensor is not negative
import shardmesh.layout;

using namespace shardmesh;
using negative = static_layout<static_extents{2}, static_extents{4, -1}, placement::replicate()>;
static_assert(negative::size() == 2);
