// SPDX-License-Identifier: Apache-2.0
// The kernels as nvcc compiles them: tables, bodies, and the plain launch, in C++17 without modules.
#include <shardmesh/kernels/cut_tiles.hpp>
#include <shardmesh/kernels/launch.cuh>

#include <cstddef>
#include <cstdint>

using namespace shardmesh;
using namespace shardmesh::kernel_bodies;

// Runs a batch of one item, with tables in the caller's memory.
void run_item(const batch_item& item, tile_item* items_there, std::int64_t* tiles_there, std::byte* to,
              const std::byte* from, cudaStream_t stream) {
  const tile_tables tables = cut_all(&item, 1, device_tiles);
  cudaMemcpyAsync(items_there, tables.items.data(), sizeof(tile_item), cudaMemcpyHostToDevice, stream);
  cudaMemcpyAsync(tiles_there, tables.first_tile.data(), 2 * sizeof(std::int64_t), cudaMemcpyHostToDevice, stream);
  slot_addresses<2> slots{{to, const_cast<std::byte*>(from)}, 1};
  launch_phase(tiled_phase{items_there, tiles_there, 1}, tables.phase(0).tiles(), slots, stream);
}
