// SPDX-License-Identifier: Apache-2.0
// libshardmesh_cuda_kernels: the C functions of <shardmesh/kernels/cuda_kernels.h> over the kernel bodies, for nvcc.
// Tiles are in device_tile.hpp; module cuda loads this library.
#include <shardmesh/kernels/cuda_kernels.h>
#include <shardmesh/kernels/cut_tiles.hpp>
#include <shardmesh/kernels/launch.cuh>
#include <shardmesh/version.hpp>

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <vector>

using namespace shardmesh;
using namespace shardmesh::kernel_bodies;

namespace {

struct table {
  int device = 0;
  tile_item* items = nullptr;  // on the device, as are the numbers below
  std::int64_t* first_tile = nullptr;
  struct phase {
    std::size_t first = 0;
    std::int64_t count = 0;
    std::int64_t tiles = 0;
  };
  std::vector<phase> phases;
};

// Makes a device current, and restores the previous one.
class on_device {
 public:
  explicit on_device(int device) {
    cudaGetDevice(&before_);
    error = cudaSetDevice(device);
  }
  ~on_device() { cudaSetDevice(before_); }
  cudaError_t error = cudaSuccess;

 private:
  int before_ = 0;
};

cudaError_t upload(const tile_tables& tables, table& made) {
  const std::size_t items = tables.items.size() * sizeof(tile_item);
  const std::size_t numbers = tables.first_tile.size() * sizeof(std::int64_t);
  if (const cudaError_t e = cudaMalloc(&made.items, items); e != cudaSuccess) return e;
  if (const cudaError_t e = cudaMalloc(&made.first_tile, numbers); e != cudaSuccess) return e;
  if (const cudaError_t e = cudaMemcpy(made.items, tables.items.data(), items, cudaMemcpyHostToDevice);
      e != cudaSuccess)
    return e;
  if (const cudaError_t e = cudaMemcpy(made.first_tile, tables.first_tile.data(), numbers, cudaMemcpyHostToDevice);
      e != cudaSuccess)
    return e;
  return cudaStreamSynchronize(nullptr);  // a copy from pageable memory may return before it is done
}

template <int Slots>
cudaError_t launch(const table& what, unsigned char* const* to, std::size_t to_count, const unsigned char* const* from,
                   std::size_t from_count, cudaStream_t stream) {
  slot_addresses<Slots> slots;
  slots.sources = static_cast<std::uint32_t>(to_count);
  for (std::size_t i = 0; i < to_count; ++i) slots.at[i] = reinterpret_cast<std::byte*>(to[i]);
  for (std::size_t i = 0; i < from_count; ++i)
    slots.at[to_count + i] = reinterpret_cast<std::byte*>(const_cast<unsigned char*>(from[i]));
  for (const table::phase& each : what.phases)
    launch_phase(tiled_phase{what.items + each.first, what.first_tile + each.first, each.count}, each.tiles, slots,
                 stream);
  return cudaPeekAtLastError();
}

void free_table(table* what) {
  cudaFree(what->items);
  cudaFree(what->first_tile);
  delete what;
}

}  // namespace

int shardmesh_cuda_kernels_version(void) {
  return SHARDMESH_CUDA_KERNELS_VERSION;
}

size_t shardmesh_cuda_kernels_item_bytes(void) {
  return sizeof(batch_item);
}

const char* shardmesh_cuda_kernels_build(void) {
  static const std::string text = [] {
    std::string made = "shardmesh " SHARDMESH_VERSION ", CUDA " + std::to_string(CUDART_VERSION / 1000) + "." +
                       std::to_string(CUDART_VERSION / 10 % 100) + ", architectures";
    for (const int architecture : {__CUDA_ARCH_LIST__}) made += " " + std::to_string(architecture / 10);
    return made;
  }();
  return text.c_str();
}

int shardmesh_cuda_table_create(const void* items, size_t count, int device, size_t* refused, void** made) {
  const auto* const all = static_cast<const batch_item*>(items);
  *made = nullptr;
  for (std::size_t i = 0; i < count; ++i)
    if (!has_kernel(all[i]) || all[i].to_slot >= std::uint32_t{most_slots} ||
        all[i].from_slot >= std::uint32_t{most_slots}) {
      *refused = i;
      return SHARDMESH_CUDA_KERNELS_NO_KERNEL;
    }
  if (const cudaError_t e = cudaSetDevice(device); e != cudaSuccess) return e;
  try {
    auto created = std::make_unique<table>();
    created->device = device;
    if (count > 0) {
      const tile_tables tables = cut_all(all, count, device_tiles);
      for (std::size_t p = 0; p < tables.phase_count(); ++p)
        created->phases.push_back({tables.phases[p], tables.phase(p).count, tables.phase(p).tiles()});
      if (const cudaError_t e = upload(tables, *created); e != cudaSuccess) {
        free_table(created.release());
        return e;
      }
    }
    *made = created.release();
  } catch (const std::bad_alloc&) {
    return cudaErrorMemoryAllocation;
  }
  return cudaSuccess;
}

int shardmesh_cuda_table_launch(void* which, unsigned char* const* to, size_t to_count,
                                const unsigned char* const* from, size_t from_count, void* stream) {
  const table& what = *static_cast<const table*>(which);
  const on_device here(what.device);
  if (here.error != cudaSuccess) return here.error;
  const auto on = static_cast<cudaStream_t>(stream);
  if (to_count + from_count <= std::size_t{few_slots})
    return launch<few_slots>(what, to, to_count, from, from_count, on);
  if (to_count + from_count <= std::size_t{most_slots})
    return launch<most_slots>(what, to, to_count, from, from_count, on);
  return cudaErrorInvalidValue;
}

void shardmesh_cuda_table_destroy(void* which) {
  if (!which) return;
  auto* const what = static_cast<table*>(which);
  const on_device here(what->device);
  free_table(what);  // cudaFree waits for the device's work
}
