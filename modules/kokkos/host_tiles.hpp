// SPDX-License-Identifier: Apache-2.0
// The loop over tiles of one host thread, compiled for several instruction sets; the best one for the machine is chosen
// at run time. Each variant renames the namespace of the kernels, so that the linker does not confuse the functions of
// two variants. Items are untyped here for that reason. engine.cpp assigns the tiles to threads.
#pragma once
#include <cstddef>
#include <cstdint>

namespace shardmesh::kokkos_engine {

/// Runs `count` tiles of a kernel_bodies::tile_item, from tile number `first` on.
using run_tiles_function = void (*)(const void* item, std::int64_t first, std::int64_t count, std::byte* to,
                                    const std::byte* from);
void run_tiles_anywhere(const void* item, std::int64_t first, std::int64_t count, std::byte* to, const std::byte* from);
#if defined(__x86_64__)
void run_tiles_v3(const void* item, std::int64_t first, std::int64_t count, std::byte* to, const std::byte* from);
void run_tiles_v4(const void* item, std::int64_t first, std::int64_t count, std::byte* to, const std::byte* from);
#endif

/// Returns the best variant for this machine.
inline run_tiles_function best_run_tiles() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("x86-64-v4")) return run_tiles_v4;
  if (__builtin_cpu_supports("x86-64-v3")) return run_tiles_v3;
#endif
  return run_tiles_anywhere;
}

}  // namespace shardmesh::kokkos_engine
