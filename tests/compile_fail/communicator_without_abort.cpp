// SPDX-License-Identifier: Apache-2.0
// A transport that lacks a function is not a communicator, and the concept names the required functions.
// says: a communicator has rank, size, all_gather, start_exchange, and abort
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>
import shardmesh.comm;

struct lonely {
  std::int32_t rank() const { return 0; }
  std::int32_t size() const { return 1; }
  shardmesh::result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte>,
                                                                    const shardmesh::call_options&) {
    return std::vector<std::vector<std::byte>>(1);
  }
  shardmesh::result<shardmesh::pending> start_exchange(std::span<const shardmesh::outgoing>,
                                                       std::span<const shardmesh::incoming>,
                                                       const shardmesh::call_options&) {
    return shardmesh::pending();
  }
};

int main() {
  return shardmesh::any_communicator(lonely()).size();
}
