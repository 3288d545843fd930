// SPDX-License-Identifier: Apache-2.0
// What moves is a tensor: a type that nobody wrote an adapter for is not.
// expect: error: no matching function.*does not satisfy 'local_tensor'
import shardmesh.transfer;

struct foreign {};
int main() {
  foreign tensor;
  static_cast<void>(shardmesh::side_of(shardmesh::distribution(), tensor));
}
