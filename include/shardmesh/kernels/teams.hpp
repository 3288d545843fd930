// SPDX-License-Identifier: Apache-2.0
// Teams: who runs a tile together. A kernel body is written as steps of `for_each`, with `sync` between those that look
// at each other's results through `scratch`; nothing lives in registers from one step to the next. So the same body is
// a thread of a host, a block of a device, or a loop that stands for a block (for tests without a device).
#pragma once
#include <shardmesh/kernels/function.hpp>

#include <cstddef>
#include <cstdint>

namespace shardmesh::kernel_bodies {

/// Of each team: lines of offsets, or a square of 32 x 33 elements of up to 16 bytes.
inline constexpr std::size_t scratch_bytes = 32 * 33 * 16;

/// One thread of a host, which has loops of its own for that: they vectorise.
struct single_thread {
  static constexpr bool is_alone = true;
};

/// A block of threads as a loop: every step is done for all of its threads, one after the other.
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
/// The threads of a block. `scratch` is shared memory. The host's half of its functions is never called.
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
