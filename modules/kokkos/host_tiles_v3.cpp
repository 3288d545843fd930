// SPDX-License-Identifier: Apache-2.0
// The kernels for x86-64-v3 (AVX2): see host_tiles.hpp.
#include "host_tiles.hpp"

#if defined(__x86_64__)
#define shardmesh shardmesh_v3
#include <shardmesh/kernels/host_tile.hpp>
#undef shardmesh

namespace shardmesh::kokkos_engine {

void run_tiles_v3(const void* item, std::int64_t first, std::int64_t count, std::byte* to, const std::byte* from) {
  namespace kernels = shardmesh_v3::kernel_bodies;
  const auto& tiles = *static_cast<const kernels::tile_item*>(item);
  for (std::int64_t i = 0; i < count; ++i) kernels::run_tile(kernels::single_thread{}, tiles, first + i, to, from);
}

}  // namespace shardmesh::kokkos_engine
#endif
