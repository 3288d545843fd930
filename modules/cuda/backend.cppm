// SPDX-License-Identifier: Apache-2.0
// The backend of CUDA memory: memory from the device's pool, copies and events are CUDA's; kernels are given. Not here:
// the kernels themselves (include/shardmesh/kernels/cuda_kernels.h says how they come).
export module shardmesh.cuda:backend;

import shardmesh.std;
import shardmesh.core;
import shardmesh.kernels;
import :runtime;

export namespace shardmesh {

/// Where the backend finds what it needs. Empty paths: as `cuda::runtime::load`, and for kernels what
/// SHARDMESH_CUDA_KERNELS names, else libshardmesh_cuda_kernels.so if the loader finds it.
struct cuda_options {
  std::string cudart{};
  std::string kernels{};
  /// Batches run on the host, in the order of their stream: for memory that the host can follow too, as that of a
  /// simulated device. `kernels` is not looked for then.
  bool kernels_on_host = false;
  /// The device's pool keeps what is freed for the next allocation, instead of giving it back when a stream is waited
  /// for.
  bool pool_keeps_memory = true;
  /// Pinned memory that is kept for the next staging buffer.
  std::int64_t staging_keep_bytes = std::int64_t{256} << 20;
};

/// A backend for all CUDA devices of this machine. Work without a stream goes to the device's default stream (the
/// legacy one, which waits for what other blocking streams have and they for it). Without kernels, a batch may hold
/// copies that convert nothing and that a few calls of cudaMemcpy2DAsync can do; `prepare` refuses the rest.
/// \errors errc::unsupported: there is no CUDA runtime, no driver or no device; a library of kernels that is named
///         cannot be loaded or is of another version
result<std::shared_ptr<kernel_backend>> cuda_backend(const cuda_options& options = {});

/// CUDA memory can be used from here to the end of the scope (`backend_for`). Move-only.
class cuda_scope {
 public:
  /// \errors those of `cuda_backend`
  static result<cuda_scope> open(const cuda_options& options = {});
  kernel_backend& backend() const { return *backend_; }

 private:
  explicit cuda_scope(std::shared_ptr<kernel_backend> backend)
      : backend_(backend), scope_(std::make_unique<backend_scope>(std::move(backend))) {}
  std::shared_ptr<kernel_backend> backend_;
  std::unique_ptr<backend_scope> scope_;
};

}  // namespace shardmesh
