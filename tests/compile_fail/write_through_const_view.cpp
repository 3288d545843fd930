// SPDX-License-Identifier: Apache-2.0
// What a const tensor gives is read: its elements are not written.
// expect: error: cannot assign to variable|error: cannot assign to return value|error: read-only variable is not
// assignable
#include <cstddef>

import shardmesh.core;

int main() {
  const shardmesh::host_tensor tensor{};
  *shardmesh::view_of(tensor).data = std::byte{1};
}
