// SPDX-License-Identifier: Apache-2.0
// A dtensor of move-only tensors must be moved: forgetting std::move is the commonest mistake.
// says: a dtensor copies only when its tensor type does, and this one does not: std::move it
import shardmesh.sharding;

void keep(shardmesh::dtensor<shardmesh::host_tensor>) {}
void use(shardmesh::dtensor<shardmesh::host_tensor>& tensor) {
  keep(tensor);
}
int main() {}
