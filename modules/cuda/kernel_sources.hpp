// SPDX-License-Identifier: Apache-2.0
// The texts from which NVRTC compiles the kernels: cuda_kernels/run_tiles.cu and all that it includes. The build makes
// their definition (cmake/embed_kernel_sources.cmake), which is not a module unit. kernel_compiler uses them.
#pragma once
#include <cstddef>

namespace shardmesh::cuda {

/// A file by the name under which others include it, and its text.
struct kernel_source {
  const char* name;
  const char* text;
};
/// The program first, and then its headers.
extern const kernel_source kernel_sources[];
extern const std::size_t kernel_source_count;

}  // namespace shardmesh::cuda
