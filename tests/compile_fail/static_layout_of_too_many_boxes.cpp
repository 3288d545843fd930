// SPDX-License-Identifier: Apache-2.0
// A split factor that splits a rank's part into 10^12 boxes is a mistake.
// expect: error: static assertion failed.*the placements give a rank too many boxes
#include <cstdint>

import shardmesh.layout;

using namespace shardmesh;
using dust = static_layout<static_extents{2}, static_extents{std::int64_t{1} << 41},
                           placement::strided_shard(0, std::int64_t{1} << 40)>;
static_assert(dust::size() == 2);
