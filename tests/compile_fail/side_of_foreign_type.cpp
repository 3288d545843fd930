// SPDX-License-Identifier: Apache-2.0
// What moves is a tensor: a type that nobody wrote an adapter for is not.
// says: what moves is a tensor: specialise shardmesh::adapter for this type (shardmesh/adapter.hpp), or use host_tensor
// notes: 10
import shardmesh.transfer;

struct foreign {};
int main() {
  foreign tensor;
  static_cast<void>(shardmesh::side_of(shardmesh::distribution(), tensor));
}
