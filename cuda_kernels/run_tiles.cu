// SPDX-License-Identifier: Apache-2.0
// The kernel that NVRTC compiles where the library of cuda_kernels.cu is missing. The room cuda contains this text and
// that of the headers (cmake/embed_kernel_sources.cmake); modules/cuda/kernel_compiler gives the macros.
#include <shardmesh/kernels/launch.cuh>

using namespace shardmesh::kernel_bodies;

static_assert(sizeof(tile_item) == SHARDMESH_TILE_ITEM_BYTES, "the host that cuts the tiles has another layout");

extern "C" __global__ void __launch_bounds__(threads_per_tile)
    shardmesh_run_tiles(tiled_phase phase, slot_addresses<SHARDMESH_SLOTS> slots) {
  share_tiles<SHARDMESH_COMPUTES>(phase, slots);
}
