// SPDX-License-Identifier: Apache-2.0
// A sharded tensor copies only when its tensors do: host_tensor does not.
// expect: error: .*(deleted|matching) .*constructor .*sharded_tensor<.*host_tensor
import shardmesh.sharding;

shardmesh::sharded_tensor<shardmesh::host_tensor> copy(
    const shardmesh::sharded_tensor<shardmesh::host_tensor>& tensor) {
  return tensor;
}
int main() {}
