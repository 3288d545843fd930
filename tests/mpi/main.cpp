// SPDX-License-Identifier: Apache-2.0
// The ranks of mpirun, each with a session of the same test cases.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <rank_session.hpp>
#include <span>
#include <string>

#include "world.hpp"

import shardmesh.mpi;

std::int32_t world_handle() {
  return MPI_Comm_c2f(MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  auto keeper = shardmesh::mpi_communicator::world();  // keeps MPI initialised between test cases
  if (!keeper) {
    std::fprintf(stderr, "%s\n", to_string(keeper.error()).c_str());
    return 2;
  }
  const int failed = run_rank_session(argc, argv, keeper->rank());
  // No failing rank leaves before the others have reported: mpirun would end them.
  static_cast<void>(keeper->all_gather({}, {.within = in_seconds(20)}));
  return failed == 0 ? 0 : 1;
}
