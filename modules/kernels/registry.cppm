// SPDX-License-Identifier: Apache-2.0
// Finds the backend of a device: the host's own, or one that an open scope provides.
export module shardmesh.kernels:registry;

import shardmesh.std;
import shardmesh.core;
import :backend;

export namespace shardmesh {

/// Returns the tuned host kernels as a backend. Always available.
std::shared_ptr<kernel_backend> host_backend();

/// Returns the backend for memory of this device: that of the most recently opened scope whose backend reaches it, else
/// the host's. The result keeps the backend alive. \errors errc::unsupported naming the device if no backend reaches
/// it, with a hint that names one that would
result<std::shared_ptr<kernel_backend>> backend_for(device where);

/// Checks that a backend reaches this device; functions that move tensors call it first. \errors as `backend_for`
result<void> check_reachable(device where);
template <tensor_view_type View>
result<void> check_reachable(const View& view) {
  return check_reachable(view.where);
}

/// Makes a backend available until the end of the scope. Scopes may end in any order. Prepared work keeps the backend
/// that prepared it.
class backend_scope {
 public:
  explicit backend_scope(std::shared_ptr<kernel_backend> backend);
  backend_scope(const backend_scope&) = delete;
  backend_scope& operator=(const backend_scope&) = delete;
  ~backend_scope();

 private:
  std::shared_ptr<kernel_backend> backend_;
};

}  // namespace shardmesh
