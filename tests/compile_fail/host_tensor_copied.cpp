// SPDX-License-Identifier: Apache-2.0
// Whole tensors are never copied by accident: host_tensor moves, `clone` copies.
// says: a host_tensor is not copied by accident: std::move it, or clone() it
import shardmesh.core;

int main() {
  shardmesh::host_tensor a;
  shardmesh::host_tensor b = a;
  return static_cast<int>(b.bytes().size());
}
