// SPDX-License-Identifier: Apache-2.0
// Every rank runs every test case, in the order of the files. Rank 0 reports; the others only when something fails.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <catch2/catch_session.hpp>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "world.hpp"

import shardmesh.mpi;

std::int32_t world_handle() {
  return MPI_Comm_c2f(MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  auto keeper = shardmesh::mpi_communicator::world();  // MPI stays up between the test cases
  if (!keeper) {
    std::fprintf(stderr, "%s\n", to_string(keeper.error()).c_str());
    return 2;
  }
  Catch::Session session;
  if (const int wrong = session.applyCommandLine(argc, argv); wrong != 0) return wrong;
  session.configData().runOrder = Catch::TestRunOrder::Declared;
  session.configData().rngSeed = 1;
  session.configData().defaultColourMode = Catch::ColourMode::None;
  std::filesystem::path report;
  if (keeper->rank() != 0) {
    report = std::filesystem::temp_directory_path() /
             ("shardmesh_mpi_" + std::to_string(MPI_Wtime()) + "_" + std::to_string(keeper->rank()) + ".txt");
    session.configData().defaultOutputFilename = report.string();
  }
  const int failed = session.run();
  if (!report.empty()) {
    if (failed != 0) std::cerr << "rank " << keeper->rank() << ":\n" << std::ifstream(report).rdbuf() << std::flush;
    std::filesystem::remove(report);
  }
  // Nobody leaves with a failure before the others have reported: mpirun would end them.
  static_cast<void>(keeper->all_gather({}, {.deadline = in_seconds(20)}));
  return failed == 0 ? 0 : 1;
}
