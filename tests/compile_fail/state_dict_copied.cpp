// SPDX-License-Identifier: Apache-2.0
// A move-only tensor makes a move-only state dict.
// expect: 'shardmesh::host_tensor' does not satisfy 'copy_constructible'
#include <concepts>
import shardmesh.state;

shardmesh::state_dict<shardmesh::host_tensor> copy(const shardmesh::state_dict<shardmesh::host_tensor>& dict) {
  return dict;
}
