// SPDX-License-Identifier: Apache-2.0
// Bytes, and their bits, are counted in 64 bits.
// expect: error: static assertion failed.*the bytes of the tensor do not fit in 64 bits
#include <cstdint>

import shardmesh.transfer;

using namespace shardmesh;
using rows = static_layout<static_extents{4}, static_extents{std::int64_t{1} << 61}, placement::shard(0)>;
static_assert(static_transfer<rows, rows>::ranks == 4);
