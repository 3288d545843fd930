// SPDX-License-Identifier: Apache-2.0
// The backend of CUDA memory. Memory comes from the device's pool; copies and events are CUDA's; kernels come from a
// library of their own, or from NVRTC. include/shardmesh/kernels/cuda_kernels.h is the interface of that library.
export module shardmesh.cuda:backend;

import shardmesh.std;
import shardmesh.core;
import shardmesh.kernels;
import :runtime;

export namespace shardmesh {

/// The options of the CUDA backend: its libraries and its memory. With an empty `cudart`, `cuda::runtime::load` finds
/// the library. With empty `kernels`, `cuda::kernel_library::find` finds the kernels; `none` means that none are used.
/// If there is no library of kernels, or `kernels` is "nvrtc", NVRTC compiles the kernels when a batch first needs
/// them. `cuda::nvrtc::find` finds NVRTC; the value "none" of the option `nvrtc` turns compiling off.
struct cuda_options {
  std::string cudart{};
  std::string kernels{};
  std::string nvrtc{};
  /// Whether batches run on the host, in the order of their stream. For memory that the host can access as well, such
  /// as that of a simulated device. The library in `kernels` is then not loaded.
  bool kernels_on_host = false;
  /// Whether the device's pool keeps freed memory for the next allocation, instead of releasing it when a stream is
  /// synchronised.
  bool pool_keeps_memory = true;
  /// The most bytes of pinned memory kept for later staging buffers.
  std::int64_t staging_keep_bytes = std::int64_t{256} << 20;
};

/// Makes a backend for all CUDA devices of this machine. Work without a stream goes to the device's default stream (the
/// legacy one, which synchronises with all other blocking streams). Without kernels, a batch may only contain copies
/// without conversion that a few calls of cudaMemcpy2DAsync can do; `prepare` refuses the rest. `prepare` may compile:
/// up to two minutes, once for a machine ("The kernels" in docs/gpu.md).
/// \errors errc::unsupported: there is no CUDA runtime, no driver, or no device; a named library of kernels or a named
///         NVRTC cannot be loaded, or has another version
result<std::shared_ptr<kernel_backend>> cuda_backend(const cuda_options& options = {});

/// A scope in which CUDA memory can be used (`backend_for` finds its backend). Move-only.
class cuda_scope {
 public:
  /// Opens the scope. \errors the errors of `cuda_backend`
  static result<cuda_scope> open(const cuda_options& options = {});
  kernel_backend& backend() const { return *backend_; }

 private:
  explicit cuda_scope(std::shared_ptr<kernel_backend> backend)
      : backend_(backend), scope_(std::make_unique<backend_scope>(std::move(backend))) {}
  std::shared_ptr<kernel_backend> backend_;
  std::unique_ptr<backend_scope> scope_;
};

}  // namespace shardmesh
