// SPDX-License-Identifier: Apache-2.0
// A sharded tensor is copyable only if its tensors are; host_tensor is not.
// says: a sharded tensor copies only when its tensor type does, and this one does not: std::move it
import shardmesh.sharding;

shardmesh::sharded_tensor<shardmesh::host_tensor> copy(
    const shardmesh::sharded_tensor<shardmesh::host_tensor>& tensor) {
  return tensor;
}
int main() {}
