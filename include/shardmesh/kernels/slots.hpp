// SPDX-License-Identifier: Apache-2.0
// The arguments of the kernel over tiles, as the host and the kernel see them. C++17, for any compiler. launch.cuh has
// the kernel.
#pragma once
#include <shardmesh/kernels/function.hpp>

#include <cstddef>
#include <cstdint>

namespace shardmesh::kernel_bodies {

/// Addresses are launch arguments, so their number is a constant of the kernel: as many as fit into the 4 KiB that
/// every launch can pass, and the maximum for sm_70 and later, which take 32 KiB.
inline constexpr int few_slots = 480;
inline constexpr int most_slots = 4000;

/// Addresses of slots, by value: first those of destinations, then those of sources.
template <int Slots>
struct slot_addresses {
  std::byte* at[Slots];
  std::uint32_t sources;  // index of the first source
};

inline constexpr int threads_per_tile = 256;

/// Returns the number of blocks that share this many tiles: one each, up to a limit below that of grids.
SHARDMESH_KERNEL_FUNCTION inline unsigned blocks_for(std::int64_t tiles) {
  constexpr std::int64_t most = std::int64_t{1} << 30;
  return static_cast<unsigned>(tiles < most ? tiles : most);
}

}  // namespace shardmesh::kernel_bodies
