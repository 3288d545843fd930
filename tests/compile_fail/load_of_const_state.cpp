// SPDX-License-Identifier: Apache-2.0
// A load writes through the state, so a const state dict cannot take the values.
// says: a state to load is a variable, not const, with a local view
// notes: 40
import shardmesh.collective_checkpoint;
import shardmesh.state_checkpoint;

int main() {
  const shardmesh::state_dict<shardmesh::host_tensor> state{};
  shardmesh::load("out", state);
}
