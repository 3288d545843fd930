// SPDX-License-Identifier: Apache-2.0
// A const tensor's view is read-only: its elements cannot be written.
// expect: error: cannot assign to variable|error: cannot assign to return value|error: read-only variable is not
// assignable
#include <cstddef>

import shardmesh.core;

int main() {
  const shardmesh::host_tensor tensor{};
  *shardmesh::view_of(tensor).data = std::byte{1};
}
