// SPDX-License-Identifier: Apache-2.0
// A kernel library for the double, with the functions of cuda_kernels.h: copies of a few dtypes, element by element, as
// host functions on their stream. A separate library in plain C++, loaded like the real one.
#include <shardmesh/kernels/cuda_kernels.h>
#include <shardmesh/kernels/batch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "gpu_double/cuda_abi.h"

#ifndef SHARDMESH_KERNELS_DOUBLE_VERSION
#define SHARDMESH_KERNELS_DOUBLE_VERSION SHARDMESH_CUDA_KERNELS_VERSION
#endif
#ifndef SHARDMESH_KERNELS_DOUBLE_BUILD
#define SHARDMESH_KERNELS_DOUBLE_BUILD "the double"
#endif

namespace {

using shardmesh::batch_item;
using shardmesh::dtype;

struct table {
  std::vector<batch_item> items;
  std::uint32_t phases = 0;
};

struct launched {
  std::shared_ptr<const table> what;
  std::vector<unsigned char*> to;
  std::vector<const unsigned char*> from;
};

std::size_t size_of(dtype type) {
  return type == dtype::float64 || type == dtype::int64 ? 8 : type == dtype::float32 || type == dtype::int32 ? 4 : 0;
}

void copy_loops(const batch_item& item, int depth, unsigned char* to, const unsigned char* from) {
  if (depth == item.rank) return static_cast<void>(std::memcpy(to, from, size_of(item.to_type)));
  const auto& loop = item.loops[depth];
  for (std::int64_t i = 0; i < loop.size; ++i) copy_loops(item, depth + 1, to + i * loop.to, from + i * loop.from);
}

void run(void* argument) {
  const std::unique_ptr<launched> work(static_cast<launched*>(argument));
  for (std::uint32_t phase = 0; phase < work->what->phases; ++phase)
    for (const batch_item& item : work->what->items)
      if (item.phase == phase)
        copy_loops(item, 0, work->to[item.to_slot] + item.to_offset, work->from[item.from_slot] + item.from_offset);
}

}  // namespace

int shardmesh_cuda_kernels_version() {
  return SHARDMESH_KERNELS_DOUBLE_VERSION;
}
std::size_t shardmesh_cuda_kernels_item_bytes() {
  return sizeof(batch_item);
}

const char* shardmesh_cuda_kernels_build() {
  return SHARDMESH_KERNELS_DOUBLE_BUILD;
}

int shardmesh_cuda_table_create(const void* items, std::size_t count, int device, std::size_t* refused, void** made) {
  const auto* const all = static_cast<const batch_item*>(items);
  for (std::size_t i = 0; i < count; ++i)
    if (all[i].op != shardmesh::batch_op::copy || all[i].to_type != all[i].from_type || size_of(all[i].to_type) == 0)
      return *refused = i, SHARDMESH_CUDA_KERNELS_NO_KERNEL;
  if (const int code = cudaSetDevice(device); code != 0) return code;
  auto own = std::make_shared<table>(table{{all, all + count}});
  for (const batch_item& item : own->items) own->phases = std::max(own->phases, item.phase + 1);
  *made = new std::shared_ptr<const table>(std::move(own));
  return 0;
}

int shardmesh_cuda_table_launch(void* made, unsigned char* const* to, std::size_t to_count,
                                const unsigned char* const* from, std::size_t from_count, void* stream) {
  auto work = std::make_unique<launched>(
      launched{*static_cast<std::shared_ptr<const table>*>(made), {to, to + to_count}, {from, from + from_count}});
  const int code = cudaLaunchHostFunc(stream, run, work.get());
  if (code == 0) static_cast<void>(work.release());
  return code;
}

void shardmesh_cuda_table_destroy(void* made) {
  delete static_cast<std::shared_ptr<const table>*>(made);
}
