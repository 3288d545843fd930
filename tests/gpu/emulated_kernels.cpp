// SPDX-License-Identifier: Apache-2.0
// The same C functions without a device: every block of threads is a loop, and memory is the host's. Thus the suite's
// own program, its oracle, and the kernel bodies are checked without a GPU. Not a backend.
#include <shardmesh/kernels/cuda_kernels.h>
#include <shardmesh/kernels/cut_tiles.hpp>
#include <shardmesh/kernels/device_tile.hpp>

#include <vector>

using namespace shardmesh;
using namespace shardmesh::kernel_bodies;

int shardmesh_cuda_kernels_version(void) {
  return SHARDMESH_CUDA_KERNELS_VERSION;
}

size_t shardmesh_cuda_kernels_item_bytes(void) {
  return sizeof(batch_item);
}

const char* shardmesh_cuda_kernels_build(void) {
  return "emulated on the host";
}

int shardmesh_cuda_table_create(const void* items, size_t count, int, size_t* refused, void** made) {
  const auto* const all = static_cast<const batch_item*>(items);
  for (std::size_t i = 0; i < count; ++i)
    if (!has_kernel(all[i])) {
      *refused = i;
      return SHARDMESH_CUDA_KERNELS_NO_KERNEL;
    }
  *made = new tile_tables(cut_all(all, count, device_tiles));
  return 0;
}

int shardmesh_cuda_table_launch(void* which, unsigned char* const* to, size_t, const unsigned char* const* from, size_t,
                                void*) {
  const auto& tables = *static_cast<const tile_tables*>(which);
  alignas(16) std::byte scratch[scratch_bytes];
  const emulated_team team(256, scratch);
  for (std::size_t p = 0; p < tables.phase_count(); ++p) {
    const tiled_phase phase = tables.phase(p);
    for (std::int64_t tile = 0; tile < phase.tiles(); ++tile) {
      const std::int64_t found = phase.item_of(tile);
      const tile_item& item = phase.items[found];
      std::byte* const target = reinterpret_cast<std::byte*>(to[item.to_slot]) + item.to_offset;
      const std::byte* const source =
          reads(item.op) ? reinterpret_cast<const std::byte*>(from[item.from_slot]) + item.from_offset : target;
      run_tile(team, item, tile - (phase.first_tile[found] - phase.first_tile[0]), target, source);
    }
  }
  return 0;
}

void shardmesh_cuda_table_destroy(void* which) {
  delete static_cast<tile_tables*>(which);
}
