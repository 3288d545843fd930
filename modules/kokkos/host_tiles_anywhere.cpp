// SPDX-License-Identifier: Apache-2.0
// The kernels for every machine of this architecture: see host_tiles.hpp.
#include "host_tiles.hpp"

#include <shardmesh/kernels/host_tile.hpp>

namespace shardmesh::kokkos_engine {

void run_tiles_anywhere(const void* item, std::int64_t first, std::int64_t count, std::byte* to,
                        const std::byte* from) {
  const auto& tiles = *static_cast<const kernel_bodies::tile_item*>(item);
  for (std::int64_t i = 0; i < count; ++i)
    kernel_bodies::run_tile(kernel_bodies::single_thread{}, tiles, first + i, to, from);
}

}  // namespace shardmesh::kokkos_engine
