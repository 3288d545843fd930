// SPDX-License-Identifier: Apache-2.0
// Only tensors can be moved: a type without an adapter is not a tensor.
// says: what moves is a tensor: specialise shardmesh::adapter for this type (shardmesh/adapter.hpp), or use host_tensor
// notes: 10
import shardmesh.transfer;

struct foreign {};
int main() {
  foreign tensor;
  static_cast<void>(shardmesh::side_of(shardmesh::distribution(), tensor));
}
