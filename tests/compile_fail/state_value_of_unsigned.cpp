// SPDX-License-Identifier: Apache-2.0
// An unsigned 64-bit number does not fit the 64-bit integers of a state dict.
// says: a state dict holds integers of 64 signed bits
#include <cstdint>
import shardmesh.state;

shardmesh::state_value<shardmesh::host_tensor> value(std::uint64_t number) {
  return number;
}
