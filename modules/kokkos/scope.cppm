// SPDX-License-Identifier: Apache-2.0
// kokkos_scope: a scope in which Kokkos is the backend of the memories that it reaches.
export module shardmesh.kokkos:scope;

import shardmesh.std;
import shardmesh.kernels;

export namespace shardmesh {

/// The options with which `kokkos_scope::open` starts Kokkos. If Kokkos runs already, `threads` must be 0 or its number
/// of threads (errc::invalid_argument otherwise).
struct kokkos_options {
  /// The number of threads of the host's execution space. 0: Kokkos's default (OMP_NUM_THREADS, or every core).
  int threads = 0;
};

/// Returns the backend of the running Kokkos. Its host execution space (OpenMP, Serial, ...) works on host memory; its
/// device (CUDA, HIP), if this Kokkos has one, works on that device's memory.
/// \errors errc::unsupported when Kokkos was not started, or has ended
result<std::shared_ptr<kernel_backend>> kokkos_backend();

/// A scope in which Kokkos does the work on the memory that it reaches (`backend_for`). It uses the Kokkos that the
/// application has started, or else starts Kokkos, which then ends with the last scope. Move-only.
class kokkos_scope {
 public:
  /// Opens a scope. Like Kokkos::initialize, it must not be called by several threads at a time.
  /// \errors errc::unsupported when Kokkos has ended already, because it can start only once in a process, or when it
  ///         fails to start; errc::invalid_argument for a negative number of threads, or one that differs from the
  ///         running Kokkos's
  static result<kokkos_scope> open(const kokkos_options& options = {});

  const std::shared_ptr<kernel_backend>& backend() const { return backend_; }
  /// Returns the name of the host's execution space: "OpenMP", "Serial", ...
  std::string_view execution_space() const;
  int threads() const;
  /// Returns whether the scopes started Kokkos, so that it ends with the last scope.
  bool started_kokkos() const;

 private:
  class session;
  kokkos_scope() = default;
  std::shared_ptr<session> session_;  // destroyed last
  std::shared_ptr<kernel_backend> backend_;
  std::unique_ptr<backend_scope> registered_;
};

}  // namespace shardmesh
