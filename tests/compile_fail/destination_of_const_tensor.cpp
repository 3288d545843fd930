// SPDX-License-Identifier: Apache-2.0
// A const tensor can be the source of a move, but never its destination.
// expect: error: no matching function for call to 'redistribute'.*to 'const basic_tensor_side<tensor_view>'
import shardmesh.transfer;

int main() {
  const shardmesh::host_tensor from{}, to{};
  shardmesh::any_communicator* comm = nullptr;
  const auto done = shardmesh::redistribute(shardmesh::side_of(shardmesh::distribution(), from),
                                            shardmesh::side_of(shardmesh::distribution(), to), *comm);
  return done ? 0 : 1;
}
