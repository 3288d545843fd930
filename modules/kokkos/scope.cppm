// SPDX-License-Identifier: Apache-2.0
// kokkos_scope: Kokkos as the backend of the memories that it reaches, from here to the end of a scope.
export module shardmesh.kokkos:scope;

import shardmesh.std;
import shardmesh.kernels;

export namespace shardmesh {

/// How `kokkos_scope::open` starts Kokkos. Where it runs already, `threads` is 0 or what it runs with
/// (errc::invalid_argument).
struct kokkos_options {
  /// Threads of the host's execution space, where Kokkos is started here; 0: what Kokkos takes by itself
  /// (OMP_NUM_THREADS, or every core).
  int threads = 0;
};

/// The backend, where Kokkos runs. Its host execution space (OpenMP, Serial, ...) is for host memory, its device (CUDA,
/// HIP), where this Kokkos has one, for that device's.
/// \errors errc::unsupported where Kokkos was not started, or has ended
result<std::shared_ptr<kernel_backend>> kokkos_backend();

/// Joins an application that has started Kokkos, or else starts it, and ends it with the last scope. Work on memory of
/// Kokkos's devices goes to it as long as the scope lives (`backend_for`). Move-only.
class kokkos_scope {
 public:
  /// Not to be called by several threads at a time, as Kokkos::initialize is not.
  /// \errors errc::unsupported where Kokkos has ended already: it starts once in a process;
  ///         errc::invalid_argument for a negative number of threads, or one that differs from the running Kokkos's
  static result<kokkos_scope> open(const kokkos_options& options = {});

  const std::shared_ptr<kernel_backend>& backend() const { return backend_; }
  /// "OpenMP", "Serial", ...
  std::string_view execution_space() const;
  int threads() const;
  /// Whether Kokkos ends with the last scope, and not with the application.
  bool started_kokkos() const;

 private:
  class session;
  kokkos_scope() = default;
  std::shared_ptr<session> session_;  // goes last
  std::shared_ptr<kernel_backend> backend_;
  std::unique_ptr<backend_scope> registered_;
};

}  // namespace shardmesh
