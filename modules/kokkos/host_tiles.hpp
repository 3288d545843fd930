// SPDX-License-Identifier: Apache-2.0
// Tiles run by a thread of the host, compiled for several instruction sets: the one that this machine has is taken.
// Each variant renames the namespace of the kernels, so that the linker does not take a function of one for that of
// another; that is why items are untyped here. Not here: which tiles (engine.cpp).
#pragma once
#include <cstddef>
#include <cstdint>

namespace shardmesh::kokkos_engine {

/// Runs `count` tiles of a kernel_bodies::tile_item from number `first` on.
using run_tiles_function = void (*)(const void* item, std::int64_t first, std::int64_t count, std::byte* to,
                                    const std::byte* from);
void run_tiles_anywhere(const void* item, std::int64_t first, std::int64_t count, std::byte* to, const std::byte* from);
#if defined(__x86_64__)
void run_tiles_v3(const void* item, std::int64_t first, std::int64_t count, std::byte* to, const std::byte* from);
void run_tiles_v4(const void* item, std::int64_t first, std::int64_t count, std::byte* to, const std::byte* from);
#endif

/// The best variant for this machine.
inline run_tiles_function best_run_tiles() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("x86-64-v4")) return run_tiles_v4;
  if (__builtin_cpu_supports("x86-64-v3")) return run_tiles_v3;
#endif
  return run_tiles_anywhere;
}

}  // namespace shardmesh::kokkos_engine
