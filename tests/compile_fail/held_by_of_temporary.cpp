// SPDX-License-Identifier: Apache-2.0
// A held state refers to the state dict's tensors: a temporary's would be destroyed before the save.
// expect: error: call to deleted function 'held_by'
import shardmesh.state;

int main() {
  return shardmesh::held_by(shardmesh::state_dict<shardmesh::host_tensor>()).has_value() ? 0 : 1;
}
