// SPDX-License-Identifier: Apache-2.0
// Measures how fast the kernels move bytes on this GPU, compared with a plain copy kernel and cudaMemcpyAsync over as
// many bytes. Prints a table for docs/performance.md: GB/s of bytes read and written, and the ratio to the copy kernel.
#include "memory.hpp"

#include <shardmesh/kernels/cuda_kernels.h>
#include <shardmesh/kernels/batch.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

using shardmesh::batch_item;
using shardmesh::batch_op;
using shardmesh::dtype;

namespace {

__global__ void __launch_bounds__(512) copy_kernel(uint4* to, const uint4* from, std::int64_t count) {
  const std::int64_t step = std::int64_t(gridDim.x) * blockDim.x;
  for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) to[i] = from[i];
}

struct measure {
  double milliseconds;  // device time, median
  double least, most;
  double host_microseconds;  // per call, median
};

// The median of several runs, each of several calls between two events; the first calls warm up.
measure time_of(const std::function<void()>& call) {
  constexpr int calls = 10;
  cudaEvent_t begin, end;
  must(cudaEventCreate(&begin), "event");
  must(cudaEventCreate(&end), "event");
  for (int i = 0; i < 5; ++i) call();
  std::vector<double> device, host;
  for (int run = 0; run < 21; ++run) {
    must(cudaDeviceSynchronize(), "synchronize");
    must(cudaEventRecord(begin), "record");
    const auto from = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    host.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - from).count() / calls);
    must(cudaEventRecord(end), "record");
    must(cudaEventSynchronize(end), "wait");
    float ms = 0;
    must(cudaEventElapsedTime(&ms, begin, end), "elapsed");
    device.push_back(ms / calls);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::sort(device.begin(), device.end());
  std::sort(host.begin(), host.end());
  return {device[device.size() / 2], device.front(), device.back(), host[host.size() / 2]};
}

struct work {
  std::string name;
  std::vector<batch_item> items;
  std::int64_t read = 0, written = 0;         // bytes
  std::int64_t to_bytes = 0, from_bytes = 0;  // sizes of the two memories
};

std::int64_t width(dtype type) {
  return type == dtype::float32 ? 4 : type == dtype::bfloat16 ? 2 : 1;
}

// An item between the two slots; sizes and strides are in elements.
void add(work& to, batch_op op, dtype to_type, dtype from_type, std::vector<shardmesh::batch_loop> loops,
         std::int64_t to_at, std::int64_t from_at) {
  batch_item item;
  item.op = op;
  item.reduction = op == batch_op::accumulate ? shardmesh::reduce_op::sum : shardmesh::reduce_op::none;
  item.to_type = to_type;
  item.from_type = from_type;
  item.to_offset = to_at;
  item.from_offset = from_at;
  std::int64_t count = 1, to_end = width(to_type), from_end = width(from_type);
  for (shardmesh::batch_loop loop : loops) {
    count *= loop.size;
    loop.to *= width(to_type);
    loop.from *= width(from_type);
    to_end += loop.to * (loop.size - 1);
    from_end += loop.from * (loop.size - 1);
    item.loops[item.rank++] = loop;
  }
  to.items.push_back(item);
  to.read += count * (width(from_type) + (op == batch_op::accumulate ? width(to_type) : 0));
  to.written += count * width(to_type);
  to.to_bytes = std::max(to.to_bytes, to_at + to_end);
  to.from_bytes = std::max(to.from_bytes, from_at + from_end);
}

work contiguous(std::int64_t bytes, std::int64_t from_at) {
  work made{"contiguous, " + std::to_string(bytes >> 10) + " KiB" +
            (from_at % 16 != 0 ? ", source off by " + std::to_string(from_at) : "")};
  add(made, batch_op::copy, dtype::uint8, dtype::uint8, {{bytes, 1, 1}}, 0, from_at);
  return made;
}

// 150 tensors of 256 B to 64 MiB, gathered into one flat parameter; sizes are odd or multiples of `align`.
work fsdp_mix(std::int64_t align) {
  work made{std::string("FSDP mix, 150 tensors, ") + (align == 1 ? "odd sizes" : "sizes of 16 bytes")};
  std::mt19937_64 random(5);
  std::int64_t to_at = 0, from_at = 0;
  for (int i = 0; i < 150; ++i) {
    const double exponent = 8.0 + 18.0 * static_cast<double>(random() % 1000) / 1000.0;
    std::int64_t bytes = static_cast<std::int64_t>(std::pow(2.0, i < 145 ? std::min(exponent, 22.0) : exponent));
    bytes = std::max<std::int64_t>(bytes / align * align + (align == 1 ? static_cast<std::int64_t>(random() % 15) : 0),
                                   256);
    add(made, batch_op::copy, dtype::uint8, dtype::uint8, {{bytes, 1, 1}}, to_at, from_at);
    to_at += bytes;
    from_at += (bytes + 511) / 256 * 256;
  }
  return made;
}

// 256 MiB in runs, every other one of the source. The destination is contiguous; rank 4 also cuts the source's blocks.
work strided(int rank, std::int64_t run) {
  work made{"rank " + std::to_string(rank) + ", runs of " + std::to_string(run) + " bytes, every other one"};
  const std::int64_t all = (std::int64_t{256} << 20) / run;
  const std::int64_t runs = all / 64, eighth = all / 64 / 8;
  std::vector<shardmesh::batch_loop> loops;
  if (rank == 2) loops = {{all, run, run * 2}, {run, 1, 1}};
  if (rank == 3) loops = {{64, runs * run, runs * run * 2 + run}, {runs, run, run * 2}, {run, 1, 1}};
  if (rank == 4)
    loops = {{64, 8 * eighth * run, (8 * eighth + 8) * run * 2},
             {8, eighth * run, (eighth + 1) * run * 2},
             {eighth, run, run * 2},
             {run, 1, 1}};
  add(made, batch_op::copy, dtype::uint8, dtype::uint8, loops, 0, 0);
  return made;
}

work transposed(dtype type, const char* name) {
  work made{std::string("transpose of 8192 x 8192 ") + name};
  add(made, batch_op::copy, type, type, {{8192, 8192, 1}, {8192, 1, 8192}}, 0, 0);
  return made;
}

work converted(batch_op op, dtype to, dtype from, const char* name) {
  work made{name};
  add(made, op, to, from, {{std::int64_t{64} << 20, 1, 1}}, 0, 0);
  return made;
}

void row(const char* name, double bytes, const measure& took, double copy_gb_s) {
  const double gb_s = bytes / took.milliseconds * 1e-6;
  std::printf("| %s | %.0f | %.2f–%.2f | %.2f | %.1f |\n", name, gb_s, bytes / took.most * 1e-6,
              bytes / took.least * 1e-6, gb_s / copy_gb_s, took.host_microseconds);
  std::fflush(stdout);
}

}  // namespace

int main() {
  cudaDeviceProp device{};
  must(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  std::printf("%s, CUDA %d.%d\n\n", device.name, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  std::printf(
      "| what | GB/s read and written | spread | of the copy kernel | host µs a call |\n|---|---|---|---|---|\n");
  const std::int64_t most = std::int64_t{1} << 30;
  unsigned char* const to = allocate(static_cast<std::size_t>(most) + 4096);
  unsigned char* const from = allocate(static_cast<std::size_t>(most) + 4096);
  must(cudaMemset(from, 1, static_cast<std::size_t>(most)), "cudaMemset");

  const std::int64_t bytes = std::int64_t{512} << 20;
  const measure copied = time_of([&] {
    copy_kernel<<<device.multiProcessorCount * 4, 512>>>(reinterpret_cast<uint4*>(to),
                                                         reinterpret_cast<const uint4*>(from), bytes / 16);
  });
  const double copy_gb_s = 2.0 * static_cast<double>(bytes) / copied.milliseconds * 1e-6;
  row("plain copy kernel, 512 MiB", 2.0 * static_cast<double>(bytes), copied, copy_gb_s);
  row("cudaMemcpyAsync, 512 MiB", 2.0 * static_cast<double>(bytes), time_of([&] {
        must(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice), "copy");
      }),
      copy_gb_s);

  std::vector<work> all{contiguous(bytes, 0),    contiguous(bytes, 4), contiguous(bytes, 1), contiguous(1 << 20, 0),
                        contiguous(64 << 10, 0), fsdp_mix(16),         fsdp_mix(1)};
  for (const int rank : {2, 3, 4})
    for (const std::int64_t run : {64, 256, 1024, 4096}) all.push_back(strided(rank, run));
  all.push_back(transposed(dtype::float32, "float32"));
  all.push_back(transposed(dtype::bfloat16, "bfloat16"));
  all.push_back(converted(batch_op::copy, dtype::bfloat16, dtype::float32, "float32 to bfloat16, 64 Mi"));
  all.push_back(converted(batch_op::copy, dtype::float32, dtype::bfloat16, "bfloat16 to float32, 64 Mi"));
  all.push_back(converted(batch_op::copy, dtype::float8_e4m3fn, dtype::float32, "float32 to float8_e4m3fn, 64 Mi"));
  all.push_back(converted(batch_op::copy, dtype::float8_e4m3fn, dtype::bfloat16, "bfloat16 to float8_e4m3fn, 64 Mi"));
  all.push_back(converted(batch_op::copy, dtype::bfloat16, dtype::float8_e4m3fn, "float8_e4m3fn to bfloat16, 64 Mi"));
  all.push_back(converted(batch_op::copy, dtype::float32, dtype::float8_e5m2, "float8_e5m2 to float32, 64 Mi"));
  all.push_back(converted(batch_op::accumulate, dtype::float32, dtype::float32, "float32 += float32, 64 Mi"));
  all.push_back(converted(batch_op::accumulate, dtype::float32, dtype::bfloat16, "float32 += bfloat16, 64 Mi"));
  for (const work& each : all) {
    if (each.to_bytes > most || each.from_bytes > most) {
      std::printf("%s needs more than the buffers\n", each.name.c_str());
      return 1;
    }
    std::size_t refused = 0;
    void* table = nullptr;
    if (shardmesh_cuda_table_create(each.items.data(), each.items.size(), 0, &refused, &table) != 0) {
      std::printf("no table for %s\n", each.name.c_str());
      return 1;
    }
    const unsigned char* const source = from;
    unsigned char* const target = to;
    const measure took = time_of([&] {
      if (shardmesh_cuda_table_launch(table, &target, 1, &source, 1, nullptr) != 0) std::exit(1);
    });
    row(each.name.c_str(), static_cast<double>(each.read + each.written), took, copy_gb_s);
    shardmesh_cuda_table_destroy(table);
  }
  release(to);
  release(from);
  return 0;
}
