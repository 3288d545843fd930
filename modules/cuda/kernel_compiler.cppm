// SPDX-License-Identifier: Apache-2.0
// The compilation of the kernels with NVRTC, from texts that this library contains, and through a cache. launcher loads
// and launches the result.
export module shardmesh.cuda:kernel_compiler;

import shardmesh.std;
import shardmesh.core;
import :kernel_cache;
import :nvrtc;

export namespace shardmesh::cuda {

/// The kernel over tiles, for one kind of GPU and of batch. `computes` is needed for casts and arithmetic: that program
/// takes from half a minute to two minutes to compile, and the one that only moves bytes takes a second.
struct kernel_program {
  /// The name of the kernel in every program.
  static constexpr const char* kernel = "shardmesh_run_tiles";
  int architecture = 0;  // of the GPU: 90 is compute capability 9.0
  bool computes = true;
  int slots = 0;  // the most addresses that a launch passes
  friend auto operator<=>(const kernel_program&, const kernel_program&) = default;
};

/// Compiles a program. The result is machine code (a CUBIN); for a GPU that is newer than NVRTC, it is PTX of the
/// newest architecture that NVRTC knows, which the driver compiles.
/// \errors errc::unsupported: NVRTC has no architecture for the GPU; or it failed, and the error has its log
/// Cost: `kernel_program`. Needs no GPU.
result<std::vector<char>> compile(const nvrtc& with, const kernel_program& program);

/// Returns the name of a program's file in a cache. It contains a digest of everything that the content depends on: the
/// sources, the options, the versions of shardmesh and NVRTC, and the architecture.
std::string cache_name(const nvrtc& with, const kernel_program& program);

/// Returns a program from the cache, or else compiles it and writes it there. An unusable cache only costs time.
/// \errors those of `compile`
result<std::vector<char>> cached_or_compiled(const nvrtc& with, const kernel_cache& cache,
                                             const kernel_program& program);

}  // namespace shardmesh::cuda
