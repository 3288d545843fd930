// SPDX-License-Identifier: Apache-2.0
// A view refers to a tensor: a temporary's memory would be freed.
// expect: error: call to deleted function 'view_of'
import shardmesh.core;

int main() {
  return shardmesh::view_of(shardmesh::host_tensor()).data == nullptr ? 0 : 1;
}
