// SPDX-License-Identifier: Apache-2.0
// The function receives each element's index first.
// says: for_each_element<E> calls f(const extents& global, E& element), or const E& of what is const
// notes: 24
import shardmesh.sharding;

void use(shardmesh::dtensor<shardmesh::host_tensor>& tensor) {
  static_cast<void>(shardmesh::for_each_element<float>(tensor, [](float& value) { value = 0; }));
}
int main() {}
