// SPDX-License-Identifier: Apache-2.0
// A local view refers to the state dict's tensors: a temporary's would be destroyed before the save.
// expect: error: call to deleted function 'local_view'
import shardmesh.state;

int main() {
  return shardmesh::local_view(shardmesh::state_dict<shardmesh::host_tensor>()).has_value() ? 0 : 1;
}
