// SPDX-License-Identifier: Apache-2.0
// A destination's slots are written, so read-only views cannot be bound to it.
// expect: error: no matching member function.*no known conversion from .const_tensor_view
#include <shardmesh/tensor_view.hpp>

import shardmesh.transfer;

int main() {
  const shardmesh::host_tensor to{};
  shardmesh::tensor_binding destination;
  destination.slots.push_back(shardmesh::view_of(to));
}
