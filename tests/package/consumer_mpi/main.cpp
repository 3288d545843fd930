// SPDX-License-Identifier: Apache-2.0
// A consumer of the component mpi: every rank contributes as many bytes as its number plus three.
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <vector>

import shardmesh.mpi;

int main() {
  auto comm = shardmesh::mpi_communicator::world();
  if (!comm) {
    std::fprintf(stderr, "%s\n", to_string(comm.error()).c_str());
    return 1;
  }
  shardmesh::call_options options;
  options.within = std::chrono::seconds(30);
  const std::vector<std::byte> mine(static_cast<std::size_t>(comm->rank()) + 3);
  const auto all = comm->all_gather(mine, options);
  if (!all) return 1;
  std::printf("rank %d of %d has %zu bytes of rank 0\n", comm->rank(), comm->size(), all->front().size());
  return 0;
}
