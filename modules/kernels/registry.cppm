// SPDX-License-Identifier: Apache-2.0
// Which backend is for which device: the host's own, and those that scopes have brought.
export module shardmesh.kernels:registry;

import shardmesh.std;
import shardmesh.core;
import :backend;

export namespace shardmesh {

/// The tuned kernels of this room, for host memory. Always there.
std::shared_ptr<kernel_backend> host_backend();

/// The backend for memory of this device: of the scopes that are open the last one that reaches it, else the host's.
/// Keeps it alive. \errors errc::unsupported naming the device when nobody reaches it, and what would.
result<std::shared_ptr<kernel_backend>> backend_for(device where);

/// Whether tensors may be there: functions that move them ask first. \errors as `backend_for`
result<void> check_reachable(device where);
template <tensor_view_type View>
result<void> check_reachable(const View& view) {
  return check_reachable(view.where);
}

/// A backend is used from here to the end of the scope. Scopes end in any order. What has been prepared goes on with
/// the backend that it has.
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
