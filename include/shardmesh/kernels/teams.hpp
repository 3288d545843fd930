// SPDX-License-Identifier: Apache-2.0
// Teams of threads that run a tile together. A kernel body consists of `for_each` steps, with `sync` between steps that
// exchange results through `scratch`. Nothing stays in registers from one step to the next. The same body thus runs as
// a block of a device, or as a loop that stands for a block in tests without a device.
#pragma once
#include <shardmesh/kernels/function.hpp>

#include <cstddef>
#include <cstdint>

namespace shardmesh::kernel_bodies {

/// Scratch memory of a team: offsets of lines, or a square of 32 x 33 elements of up to 16 bytes.
inline constexpr std::size_t scratch_bytes = 32 * 33 * 16;

/// One thread of a host. It has its own bodies (host_tile.hpp), because their loops vectorise.
struct single_thread {
  static constexpr bool is_alone = true;
};

/// A block of threads as a loop: each step runs for all threads, one after another.
class emulated_team {
 public:
  static constexpr bool is_alone = false;
  emulated_team(int size, std::byte* scratch) : size_(size), scratch_(scratch) {}
  SHARDMESH_KERNEL_FUNCTION int size() const { return size_; }
  SHARDMESH_KERNEL_FUNCTION std::byte* scratch() const { return scratch_; }
  SHARDMESH_KERNEL_FUNCTION void sync() const {}
  template <class Function>
  SHARDMESH_KERNEL_FUNCTION void for_each(std::int64_t count, const Function& function) const {
    for (std::int64_t i = 0; i < count; ++i) function(i);
  }

 private:
  int size_;
  std::byte* scratch_;
};

#if defined(__CUDACC__) || defined(__HIPCC__)
/// The threads of a block; `scratch` is shared memory. The host halves of its functions are never called.
class block_team {
 public:
  static constexpr bool is_alone = false;
  SHARDMESH_KERNEL_FUNCTION explicit block_team(std::byte* scratch) : scratch_(scratch) {}
  SHARDMESH_KERNEL_FUNCTION int size() const {
#ifdef SHARDMESH_ON_DEVICE
    return static_cast<int>(blockDim.x);
#else
    return 1;
#endif
  }
  SHARDMESH_KERNEL_FUNCTION void sync() const {
#ifdef SHARDMESH_ON_DEVICE
    __syncthreads();
#endif
  }
  template <class Function>
  SHARDMESH_KERNEL_FUNCTION void for_each(std::int64_t count, const Function& function) const {
#ifdef SHARDMESH_ON_DEVICE
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) function(i);
#else
    (void)count, (void)function;
#endif
  }
  SHARDMESH_KERNEL_FUNCTION std::byte* scratch() const { return scratch_; }

 private:
  std::byte* scratch_;
};
#endif

}  // namespace shardmesh::kernel_bodies
