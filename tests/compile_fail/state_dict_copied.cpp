// SPDX-License-Identifier: Apache-2.0
// A tensor that only moves makes a state dict that only moves.
// expect: because 'std::copy_constructible<shardmesh::host_tensor>' evaluated to false|deleted function|call to
// implicitly-deleted copy constructor|no matching constructor
#include <concepts>
import shardmesh.state;

shardmesh::state_dict<shardmesh::host_tensor> copy(const shardmesh::state_dict<shardmesh::host_tensor>& dict) {
  return dict;
}
