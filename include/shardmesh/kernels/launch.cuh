// SPDX-License-Identifier: Apache-2.0
// The plain launch of a batch by nvcc, hipcc, or NVRTC: one kernel over all tiles of a phase, whose table lies on the
// device and whose addresses are arguments. Not here: Kokkos's launch of the same bodies (shardmesh.kokkos), memory.
#pragma once
#include <shardmesh/kernels/device_tile.hpp>
#include <shardmesh/kernels/slots.hpp>

namespace shardmesh::kernel_bodies {

/// The body of the kernel: the blocks of the grid share the tiles of a phase. Without `Computes`, only for phases that
/// move bytes, which compiles forty times as fast.
template <bool Computes = true, int Slots>
__device__ __forceinline__ void share_tiles(const tiled_phase& phase, const slot_addresses<Slots>& slots) {
  __shared__ alignas(16) unsigned char scratch[scratch_bytes];
  const block_team team(reinterpret_cast<std::byte*>(scratch));
  const std::int64_t tiles = phase.tiles();
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const std::int64_t found = phase.item_of(tile);
    const tile_item& item = phase.items[found];
    run_tile<Computes>(team, item, tile - (phase.first_tile[found] - phase.first_tile[0]),
                       slots.at[item.to_slot] + item.to_offset,
                       slots.at[slots.sources + item.from_slot] + item.from_offset);
  }
}

#ifndef __CUDACC_RTC__  // NVRTC compiles no launch, which is host code; modules/cuda launches its kernels
template <int Slots>
__global__ void __launch_bounds__(threads_per_tile) run_tiles(tiled_phase phase, slot_addresses<Slots> slots) {
  share_tiles(phase, slots);
}

/// Enqueues a phase. `tiles` is its number of tiles, which the host knows; the table lies on the device.
template <int Slots, class Stream>
inline void launch_phase(const tiled_phase& phase, std::int64_t tiles, const slot_addresses<Slots>& slots,
                         Stream stream) {
  if (const unsigned blocks = blocks_for(tiles); blocks > 0)
    run_tiles<Slots><<<blocks, threads_per_tile, 0, stream>>>(phase, slots);
}
#endif

}  // namespace shardmesh::kernel_bodies
