// SPDX-License-Identifier: Apache-2.0
// Cases that need their own process: MPI is not initialised yet, lacks threads, or is finalised.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdio>
#include <optional>
#include <string>
#include <variant>

import shardmesh.mpi;

using namespace shardmesh;

namespace {

int wrong = 0;

void expect(const result<mpi_communicator>& made, const std::string& text) {
  const std::string found = made ? "no error" : to_string(made.error());
  if (found.find(text) != std::string::npos && (!made && made.error().code == errc::unsupported)) return;
  std::fprintf(stderr, "expected: %s\nfound:    %s\n", text.c_str(), found.c_str());
  ++wrong;
}

}  // namespace

int main(int argc, char** argv) {
  const bool enough = argc > 1 && std::string(argv[1]) == "multiple";
  expect(mpi_communicator::from_handle(0), "MPI is not initialised");
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, enough ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED, &provided);
  std::optional<mpi_communicator> kept;
  if (enough) {
    auto made = mpi_communicator::world();
    if (!made || !made->all_gather({}, {})) return 1;
    kept = *made;
  } else {
    const std::string text = "expected MPI_THREAD_MULTIPLE, found MPI_THREAD_SERIALIZED; call MPI_Init_thread";
    expect(mpi_communicator::world(), text);
    expect(mpi_communicator::from_handle(MPI_Comm_c2f(MPI_COMM_WORLD)), text);
  }
  MPI_Finalize();  // too early for the kept communicator, which must tolerate it
  kept.reset();
  expect(mpi_communicator::world(), "MPI was finalised and cannot be started again");
  return wrong == 0 ? 0 : 1;
}
