// SPDX-License-Identifier: Apache-2.0
// Elements of a const tensor cannot be written.
// says: for_each_element<E> calls f(const extents& global, E& element), or const E& of what is const
// notes: 24
import shardmesh.sharding;

void use(const shardmesh::dtensor<shardmesh::host_tensor>& tensor) {
  static_cast<void>(
      shardmesh::for_each_element<float>(tensor, [](const shardmesh::extents&, float& value) { value = 0; }));
}
int main() {}
