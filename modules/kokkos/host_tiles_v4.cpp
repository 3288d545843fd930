// SPDX-License-Identifier: Apache-2.0
// The kernels for x86-64-v4 (AVX-512): see host_tiles.hpp.
#include "host_tiles.hpp"

#if defined(__x86_64__)
#define shardmesh shardmesh_v4
#include <shardmesh/kernels/host_tile.hpp>
#undef shardmesh

namespace shardmesh::kokkos_engine {

void run_tiles_v4(const void* item, std::int64_t first, std::int64_t count, std::byte* to, const std::byte* from) {
  namespace kernels = shardmesh_v4::kernel_bodies;
  const auto& tiles = *static_cast<const kernels::tile_item*>(item);
  for (std::int64_t i = 0; i < count; ++i) kernels::run_tile(kernels::single_thread{}, tiles, first + i, to, from);
}

}  // namespace shardmesh::kokkos_engine
#endif
