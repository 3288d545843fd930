// SPDX-License-Identifier: Apache-2.0
// What a state dict holds refers to its tensors: a temporary's would be gone before anything is saved.
// expect: error: call to deleted function 'held_by'
import shardmesh.state;

int main() {
  return shardmesh::held_by(shardmesh::state_dict<shardmesh::host_tensor>()).has_value() ? 0 : 1;
}
