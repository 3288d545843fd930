// SPDX-License-Identifier: Apache-2.0
// The plain launch of a batch by nvcc or hipcc: one kernel over all tiles of a phase, whose table lies on the device
// and whose addresses are arguments. Not here: Kokkos's launch of the same bodies (shardmesh.kokkos), memory.
#pragma once
#include <shardmesh/kernels/device_tile.hpp>

namespace shardmesh::kernel_bodies {

/// Addresses of slots, by value: first those of destinations, then those of sources. Kernels take 4 KiB of arguments
/// everywhere, 32 KiB from sm_70 on.
template <int Slots>
struct slot_addresses {
  std::byte* at[Slots];
  std::uint32_t sources;  // index of the first source
};

inline constexpr int threads_per_tile = 256;

template <int Slots>
__global__ void __launch_bounds__(threads_per_tile) run_tiles(tiled_phase phase, slot_addresses<Slots> slots) {
  __shared__ alignas(16) unsigned char scratch[scratch_bytes];
  const block_team team(reinterpret_cast<std::byte*>(scratch));
  const std::int64_t tiles = phase.tiles();
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const std::int64_t found = phase.item_of(tile);
    const tile_item& item = phase.items[found];
    run_tile(team, item, tile - (phase.first_tile[found] - phase.first_tile[0]),
             slots.at[item.to_slot] + item.to_offset, slots.at[slots.sources + item.from_slot] + item.from_offset);
  }
}

/// Enqueues a phase. `tiles` is its number of tiles, which the host knows; the table lies on the device.
template <int Slots, class Stream>
inline void launch_phase(const tiled_phase& phase, std::int64_t tiles, const slot_addresses<Slots>& slots,
                         Stream stream) {
  const auto blocks = static_cast<unsigned>(tiles < (std::int64_t{1} << 30) ? tiles : std::int64_t{1} << 30);
  if (blocks > 0) run_tiles<Slots><<<blocks, threads_per_tile, 0, stream>>>(phase, slots);
}

}  // namespace shardmesh::kernel_bodies
