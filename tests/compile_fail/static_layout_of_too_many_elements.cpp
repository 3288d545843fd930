// SPDX-License-Identifier: Apache-2.0
// Elements are counted in 64 bits.
// expect: error: static assertion failed.*the elements of a tensor fit in 64 bits
#include <cstdint>

import shardmesh.layout;

using namespace shardmesh;
using huge =
    static_layout<static_extents{2}, static_extents{std::int64_t{1} << 40, std::int64_t{1} << 40}, placement::shard(0)>;
static_assert(huge::size() == 2);
