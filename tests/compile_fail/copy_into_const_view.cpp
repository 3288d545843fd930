// SPDX-License-Identifier: Apache-2.0
// A const tensor cannot be the destination of a copy.
// expect: error: no viable conversion from 'const_tensor_view' to 'const tensor_view'
#include <shardmesh/tensor_view.hpp>

import shardmesh.kernels;

int main() {
  shardmesh::host_tensor from;
  const shardmesh::host_tensor to{};
  return shardmesh::copy(shardmesh::view_of(to), shardmesh::view_of(from)).has_value() ? 0 : 1;
}
