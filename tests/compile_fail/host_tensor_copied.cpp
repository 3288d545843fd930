// SPDX-License-Identifier: Apache-2.0
// Copies of whole tensors are never made by accident: host_tensor moves, `clone` copies.
// expect: error: call to implicitly-deleted copy constructor of .*host_tensor
import shardmesh.core;

int main() {
  shardmesh::host_tensor a;
  shardmesh::host_tensor b = a;
  return static_cast<int>(b.bytes().size());
}
